"""How commands end: the code, one clear line, and one JSON object where JSON was asked for."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from support.cli import cli_binary
from zone.services import free_port

Veen = Callable[..., Any]
STREAM = ("--stream", "core/main")
AT = ("--hub", "hub", "--client", "me")


@pytest.fixture(scope="module")
def hub(veen_in_home: Veen) -> str:
    """A gated hub that everybody may read, and a client that may not write."""
    port = free_port()
    assert veen_in_home("keygen", "--out", "me", "--insecure-plain").code == 0
    options = ("--listen", f"127.0.0.1:{port}", "--reads", "open", "--workers", "1")
    assert veen_in_home("hub", "start", "--data-dir", "hub", *options).code == 0
    return f"http://127.0.0.1:{port}"


def one_line(done: Any) -> str:
    """An error is one line on standard error, and nothing else is printed."""
    lines = done.err.splitlines()
    assert (done.out, len(lines)) == ("", 1), done
    assert lines[0].startswith("veen: ")
    return str(lines[0])


def one_object(done: Any) -> tuple[str, str]:
    """With --json an error is one object on standard output."""
    document = json.loads(done.out)
    assert set(document) == {"ok", "code", "detail"}
    assert document["ok"] is False
    assert done.err == ""
    return document["code"], document["detail"]


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (("sned",), "'send'"),
        (("send", "--nope"), "--nope"),
        (("send", *STREAM), "--client"),
        (("send", *AT, *STREAM), "--body-file"),
        (("send", *AT, *STREAM, "--body", "{"), "--raw"),
        (("send", *AT, *STREAM, "--body", "1", "--hub-id", "ab"), "64 hex digits"),
        (("send", "--hub", "hub", "--client", "nobody", *STREAM, "--body", "1"), "veen keygen"),
        (("explain-error", "E.NOPE"), "E.SEQ"),
        (("cap", "show", "--cap", "nowhere.cbor"), "nowhere.cbor"),
        (("hub", "status", "--timeout-ms", "0"), "--timeout-ms"),
        (("import", "set", "--into", "new", "--hub-identity", "no.cbor"), "no.cbor is missing"),
    ],
    ids=lambda item: " ".join(item) if isinstance(item, tuple) else None,
)
def test_misuse_is_1(words: tuple[str, ...], named: str, hub: str, call_in_home: Veen) -> None:
    plain = call_in_home(*words)
    assert plain.code == 1
    assert named in one_line(plain)


def test_misuse_is_an_object_in_json(hub: str, veen_in_home: Veen) -> None:
    done = veen_in_home("send", "--nope", "--json")
    assert (done.code, one_object(done)[0]) == (1, "USAGE")


def test_a_hub_that_does_not_answer_is_2(veen_in_home: Veen, hub: str) -> None:
    nowhere = ("--hub", f"http://127.0.0.1:{free_port()}")
    done = veen_in_home("hub", "status", *nowhere)
    assert (done.code, "does not answer" in one_line(done)) == (2, True)
    done = veen_in_home("hub", "status", *nowhere, "--json", "--timeout-ms", "500")
    assert (done.code, one_object(done)[0]) == (2, "UNREACHABLE")


def test_an_answer_that_takes_too_long_is_2(call_in_home: Veen) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        began = time.monotonic()
        done = call_in_home("hub", "status", "--hub", url, "--timeout-ms", "50")
    assert (done.code, "timed out" in one_line(done)) == (2, True)
    assert time.monotonic() - began < 10


def test_hub_and_client_may_come_from_the_environment(call_in_home: Veen, hub: str) -> None:
    done = call_in_home("outbox", "show", VEEN_HUB=hub, VEEN_CLIENT="me")
    assert (done.code, done.out) == (0, "pending: 0\n")


def test_another_hub_than_the_pinned_one_is_3(veen_in_home: Veen, hub: str) -> None:
    done = veen_in_home("hub", "key", "--hub", hub, "--hub-id", "ab" * 32)
    assert done.code == 3
    assert "as pinned" in one_line(done)
    done = veen_in_home("stream", *AT, *STREAM, "--hub-id", "ab" * 32, "--json")
    assert (done.code, one_object(done)[0]) == (3, "UNTRUSTED")


def test_a_file_that_is_none_of_ours_is_3(veen_in_home: Veen, hub: str, cli_home: Path) -> None:
    (cli_home / "noise.cbor").write_bytes(b"\xff\xff")
    done = veen_in_home("cap", "show", "--cap", "noise.cbor", "--json")
    assert (done.code, one_object(done)[0]) == (3, "MALFORMED")


def test_what_a_hub_refuses_is_4_and_says_what_to_do(veen_in_home: Veen, hub: str) -> None:
    done = veen_in_home("send", *AT, *STREAM, "--body", "1")
    assert done.code == 4
    assert "veen explain-error E.CAP/CAP_MISSING" in one_line(done)
    done = veen_in_home("send", *AT, *STREAM, "--body", "1", "--json")
    assert (done.code, one_object(done)[0]) == (4, "E.CAP")


def test_no_hub_to_stop_is_4(veen_in_home: Veen) -> None:
    done = veen_in_home("hub", "stop", "--data-dir", "elsewhere")
    assert (done.code, "no hub runs" in one_line(done)) == (4, True)


def test_quiet_says_nothing_but_errors(veen_in_home: Veen, hub: str) -> None:
    good = veen_in_home("hub", "status", "--hub", "hub", "--quiet")
    assert (good.code, good.out, good.err) == (0, "", "")
    bad = veen_in_home("send", *AT, *STREAM, "--body", "1", "--quiet")
    assert (bad.code, bad.out) == (4, "")
    assert one_line(bad)


def test_json_wins_over_quiet(veen_in_home: Veen, hub: str) -> None:
    done = veen_in_home("--quiet", "hub", "key", "--hub", "hub", "--json")
    assert json.loads(done.out)["ok"] is True


def test_interrupted_is_130_without_a_word(veen_in_home: Veen, hub: str, cli_home: Path) -> None:
    command = [str(cli_binary.VEEN), "--json", "stream", *AT, *STREAM, "--follow"]
    with subprocess.Popen(
        command,
        cwd=cli_home,
        env=cli_binary.environment(cli_home),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        wait_for(cli_home / "me" / "lock", process)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=30)
    assert (process.returncode, out, err) == (130, b"", b"")


def wait_for(lock: Path, process: subprocess.Popen[bytes]) -> None:
    """Until the process holds its client directory: then it is past its imports."""
    needle = f"process {process.pid} ".encode()
    while process.poll() is None:
        if lock.exists() and needle in lock.read_bytes():
            return


def test_a_reader_that_has_had_enough_is_no_error(
    veen_in_home: Veen, hub: str, cli_home: Path
) -> None:
    script = f"{cli_binary.VEEN} hub status --hub hub | head -n 1; echo ${{PIPESTATUS[0]}}"
    done = subprocess.run(
        ["/bin/bash", "-c", script],
        cwd=cli_home,
        env=cli_binary.environment(cli_home),
        capture_output=True,
        text=True,
        check=True,
    )
    assert (done.stdout, done.stderr) == ("ver: 1\n0\n", "")
