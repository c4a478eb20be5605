"""``veen keygen`` and ``veen id``, through the program itself."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from veen.client.session import ClientState, LabelView, save_state
from veen.invariants import ClientCursor
from veen.keystore.directory import ClientDir
from veen.system import durable

PROGRAM = str(Path(sys.executable).with_name("veen"))
SECRET = "correct horse battery staple"
USAGE, REFUSED = 1, 4


def environment(**changes: str) -> dict[str, str]:
    stored = {key: value for key, value in os.environ.items() if key != "VEEN_PASSPHRASE"}
    return {**stored, "COLUMNS": "200", **changes}


def veen(*arguments: object, **variables: str) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [PROGRAM, *map(str, arguments)],
        env=environment(**variables),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    assert "Traceback" not in done.stderr
    return done


def document(*arguments: object, **variables: str) -> dict[str, Any]:
    done = veen(*arguments, "--json", **variables)
    assert done.returncode == 0, done.stderr
    result: dict[str, Any] = json.loads(done.stdout)
    return result


@pytest.fixture
def plain(tmp_path: Path) -> Path:
    root = tmp_path / "client"
    done = veen("keygen", "--out", root, "--insecure-plain")
    assert done.returncode == 0, done.stderr
    assert "WARNING: THE KEYS ARE NOT PROTECTED" in done.stderr
    return root


def test_a_passphrase_from_a_file_or_the_environment_protects(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text(SECRET + "\n")
    root = tmp_path / "client"
    created = document("keygen", "--out", root, "--passphrase-file", secret, "--prekey-days", 30)
    assert created["protection"] == "argon2id"
    assert created["prekeys"][0]["expires_at"] == created["created_at"] + 30 * 86_400
    turned = document("id", "rotate", "--client", root, VEEN_PASSPHRASE=SECRET)
    assert turned["retired_client_id"] == created["client_id"] != turned["client_id"]
    identity = ClientDir(root).open(SECRET.encode())
    assert identity.client_id.hex() == turned["client_id"]


def test_without_a_passphrase_the_ways_to_give_one_are_named(tmp_path: Path) -> None:
    done = veen("keygen", "--out", tmp_path / "client")
    assert done.returncode == USAGE
    for way in ("--passphrase-file", "VEEN_PASSPHRASE", "terminal", "--insecure-plain"):
        assert way in done.stderr
    assert not (tmp_path / "client").exists()


@pytest.mark.parametrize("content", [b"", b"\n", b"two\nlines\n", b"x" * 5000])
def test_a_file_that_is_no_passphrase_is_refused(content: bytes, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_bytes(content)
    done = veen("keygen", "--out", tmp_path / "client", "--passphrase-file", secret)
    assert (done.returncode, done.stdout) == (USAGE, "")
    assert "one line" in done.stderr
    assert not (tmp_path / "client").exists()


def test_plain_and_a_passphrase_exclude_each_other(tmp_path: Path, plain: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text(SECRET)
    out = tmp_path / "other"
    done = veen("keygen", "--out", out, "--insecure-plain", "--passphrase-file", secret)
    assert done.returncode == USAGE
    done = veen("id", "rotate", "--client", plain, "--passphrase-file", secret)
    assert done.returncode == USAGE
    assert "is plain" in done.stderr


def test_another_passphrase_is_one_clear_line(tmp_path: Path) -> None:
    root = tmp_path / "client"
    document("keygen", "--out", root, VEEN_PASSPHRASE=SECRET)
    done = veen("id", "rotate", "--client", root, VEEN_PASSPHRASE="guess")
    assert done.returncode == REFUSED
    assert done.stderr == (
        f"veen: {root}/keystore.enc: decryption failed: wrong passphrase, "
        "or the bytes were changed\n"
    )


def test_refusals_are_one_line_and_a_code(plain: Path, tmp_path: Path) -> None:
    for arguments, message in (
        (
            ("keygen", "--out", "/dev/null/x", "--insecure-plain", "--quiet"),
            "/dev/null: File exists",
        ),
        (("keygen", "--out", tmp_path / "x", "--passphrase-file", "/none"), "No such file"),
        (("keygen", "--out", plain, "--insecure-plain"), "never replaced"),
        (("id", "show", "--client", tmp_path), "veen keygen --out"),
    ):
        done = veen(*arguments)
        assert (done.returncode, len(done.stderr.splitlines())) == (USAGE, 1)
        assert message in done.stderr


def test_show_needs_no_passphrase_and_tells_no_secret(tmp_path: Path) -> None:
    root = tmp_path / "client"
    created = document("keygen", "--out", root, VEEN_PASSPHRASE=SECRET)
    shown = document("id", "show", "--client", root)
    assert shown == {**created, "labels": []}
    lines = veen("id", "show", "--client", root).stdout.splitlines()
    assert f"client_id: {created['client_id']}" in lines
    assert "protection: argon2id" in lines
    identity = ClientDir(root).open(SECRET.encode())
    for secret in (*identity.readers(), identity.outbox_key):
        assert secret.hex() not in json.dumps(shown) + "".join(lines)


def test_show_says_that_an_identity_is_plain(plain: Path) -> None:
    assert "protection: plain" in veen("id", "show", "--client", plain).stdout.splitlines()


def test_usage_counts_messages_and_advises(plain: Path) -> None:
    card = ClientDir(plain).read_card()
    fresh = document("id", "usage", "--client", plain)
    assert (fresh["labels"], fresh["rotation_recommended"]) == ([], False)
    assert fresh["advice"] == [
        "the keystore is plain: whoever can read the directory can act as this client"
    ]
    view = LabelView(
        hub_id=b"h" * 32,
        stream="core/main",
        epoch=0,
        cursors={card.client_id: ClientCursor(300, 0), b"o" * 32: ClientCursor(9, 0)},
    )
    save_state(ClientDir(plain).state, ClientState().with_view(b"l" * 32, view))
    used = document("id", "usage", "--client", plain)
    assert used["rotation_recommended"]
    assert {(item["client_id"], item["msgs_sent"]) for item in used["labels"]} == {
        (card.client_id.hex(), 300),
        (b"o".hex() * 32, 9),
    }
    assert "300 messages on core/main" in used["advice"][0]
    (shown,) = document("id", "show", "--client", plain)["labels"]
    assert (shown["stream"], shown["last_stream_seq"]) == ("core/main", 0)


def test_a_damaged_state_is_reported(plain: Path) -> None:
    durable.write(plain / "state.json", b"{")
    done = veen("id", "show", "--client", plain)
    assert (done.returncode, len(done.stderr.splitlines())) == (REFUSED, 1)
    assert "state.json" in done.stderr


@pytest.mark.parametrize(("second", "code"), [(SECRET, 0), ("mistyped", USAGE)])
def test_a_terminal_is_asked_twice(second: str, code: int, tmp_path: Path) -> None:
    root = tmp_path / "client"
    output = _on_a_terminal(["keygen", "--out", str(root)], [SECRET, second], code)
    assert SECRET not in output
    assert root.exists() == (code == 0)
    if code == 0:
        ClientDir(root).open(SECRET.encode())


def _on_a_terminal(arguments: list[str], answers: list[str], code: int) -> str:
    """What the program says on a terminal of its own; after the answers the terminal hangs up."""
    pid, terminal = pty.fork()
    if pid == 0:
        os.execve(PROGRAM, [PROGRAM, *arguments], environment())
    output = ""
    deadline = time.monotonic() + 60
    for answer in answers:
        asked = len(output)
        while not output[asked:].endswith(": ") and time.monotonic() < deadline:
            output += os.read(terminal, 1024).decode()
        os.write(terminal, answer.encode() + b"\n")
    if code:
        while "do not match" not in output and time.monotonic() < deadline:
            output += os.read(terminal, 1024).decode()
        os.close(terminal)
    status = os.waitpid(pid, 0)[1]
    assert code or os.waitstatus_to_exitcode(status) == 0, output
    return output
