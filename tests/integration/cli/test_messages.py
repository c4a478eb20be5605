"""Messages through the program: bodies, readers, profiles, attachments, and who may do what."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from support.cli import cli_binary
from veen.digest import h
from zone.services import free_port

Veen = Callable[..., Any]
TOKEN = "sesame"
LINE = ("--stream", "record/line-1")
HOURLY = ("--stream", "record/hourly", "--epoch-sec", "3600", "--pad-block", "256")
SETTINGS = """
admission = "open"
workers = 1

[[streams]]
name = "record/line-1"

[[streams]]
name = "record/hourly"
epoch_sec = 3600
pad_block = 256

[[streams]]
name = "record/empty"

[[principals]]
name = "auditor"
role = "query"
public_key = "{key}"
token_sha256 = "{token}"
read = ["record/*"]
"""


@pytest.fixture(scope="module")
def detail(call_in_home: Veen) -> Callable[..., Any]:
    """Runs a command that must do; its JSON."""

    def run(*words: object, **more: Any) -> Any:
        done = call_in_home(*words, "--json", **more)
        assert done.code == 0, (words, done)
        result = (
            [json.loads(line) for line in done.out.splitlines()] if words[0] == "stream" else ()
        )
        return result or (json.loads(done.out) if done.out else [])

    return run


@pytest.fixture(scope="module", autouse=True)
def world(cli_home: Path, detail: Callable[..., Any]) -> None:
    """A hub that one principal may read, by key or by token; and ``me``, who may only write."""
    detail("keygen", "--out", "me", "--insecure-plain")
    key = detail("keygen", "--out", "auditor", "--insecure-plain")["client_id"]
    settings = SETTINGS.format(key=key, token=h(TOKEN.encode()).hex())
    (cli_home / "hub.toml").write_text(settings)
    (cli_home / "token").write_text(f"{TOKEN}\n")
    address = f"127.0.0.1:{free_port()}"
    start = ("hub", "start", "--data-dir", "hub", "--config", "hub.toml", "--listen", address)
    assert cli_binary.veen(*start, cwd=cli_home).code == 0


def by(client: str, *more: str) -> tuple[str, ...]:
    return ("--hub", "hub", "--client", client, *more)


AUDITOR = by("auditor", "--principal", "auditor")
BEARER = by("me", "--token-file", "token")


@pytest.mark.parametrize("profile", [(), HOURLY[2:]], ids=["plain", "epochs"])
def test_a_stream_that_the_hub_does_not_know_is_4(
    call_in_home: Veen, detail: Callable[..., Any], profile: tuple[str, ...]
) -> None:
    words = ("stream", *BEARER, "--stream", "record/typo", *profile)
    done = call_in_home(*words)
    assert (done.code, done.out) == (4, "")
    assert done.err.startswith("veen: stream record/typo: no messages; the hub does not know it")
    done = call_in_home(*words, "--json")
    assert (done.code, json.loads(done.out)["code"]) == (4, "UNKNOWN_STREAM")


def test_a_stream_without_messages_is_no_error(
    call_in_home: Veen, detail: Callable[..., Any]
) -> None:
    assert detail("stream", *BEARER, "--stream", "record/empty") == []
    detail("send", *by("me"), *LINE, "--body", "1")
    done = call_in_home("stream", *BEARER, *LINE, "--from", "1000000")
    assert (done.code, done.out, done.err) == (0, "", "")


def test_a_message_is_for_whom_it_is_sealed_to(
    call_in_home: Veen, detail: Callable[..., Any]
) -> None:
    body = json.dumps({"n": [1, -2.5, None, "ß"]})
    sent = detail("send", *by("me"), *LINE, "--body", body, "--to", "auditor/identity_card.pub")
    (read,) = detail("stream", *AUDITOR, *LINE, "--from", sent["stream_seq"])
    assert read["body"] == json.loads(body)
    (sealed,) = detail("stream", *BEARER, *LINE, "--from", sent["stream_seq"])
    assert (sealed["opened"], "body" in sealed, "header" in sealed) == (False, False, False)
    assert "sealed to another recipient" in call_in_home("stream", *BEARER, *LINE).out


def test_who_is_no_principal_reads_nothing(call_in_home: Veen) -> None:
    done = call_in_home("stream", *by("me"), *LINE)
    assert (done.code, done.out) == (4, "")
    assert "E.UNAUTHORIZED" in done.err
    done = call_in_home("stream", *by("me", "--principal", "auditor"), *LINE)
    assert (done.code, "E.UNAUTHORIZED" in done.err) == (4, True)


@pytest.mark.parametrize(
    ("options", "stdin", "expected"),
    [
        (("--body", "-"), b'{"from": "stdin"}', {"body": {"from": "stdin"}}),
        (("--body", "-", "--raw"), b"\x00\xff", {"body_hex": "00ff"}),
        (("--body-file", "body.json"), b"", {"body": ["file"]}),
        (("--body", "", "--raw"), b"", {"body_hex": ""}),
    ],
    ids=["stdin", "raw stdin", "file", "empty"],
)
def test_a_body_comes_from_where_it_is_said(
    options: tuple[str, ...], stdin: bytes, expected: dict[str, Any], cli_home: Path, detail: Any
) -> None:
    (cli_home / "body.json").write_text('["file"]')
    sent = detail("send", *by("me"), *LINE, *options, stdin=stdin)
    (read,) = detail("stream", *BEARER, *LINE, "--from", sent["stream_seq"])
    assert {name: read[name] for name in ("body", "body_hex") if name in read} == expected


def test_the_header_is_as_it_was_given(detail: Callable[..., Any]) -> None:
    given = ("--schema", "record.note.v1", "--parent-id", "ab" * 32, "--expires-at", "1900000000")
    sent = detail("send", *by("me"), *LINE, "--body", "{}", *given)
    (read,) = detail("stream", *BEARER, *LINE, "--from", sent["stream_seq"])
    assert read["header"] == {
        "schema": h(b"record.note.v1").hex(), "parent_id": "ab" * 32, "expires_at": 1_900_000_000,
        "expires_at_iso": "2030-03-17T17:46:40Z",
    }  # fmt: skip


def test_a_stream_with_epochs_and_padding_needs_its_profile(
    call_in_home: Veen, detail: Callable[..., Any]
) -> None:
    sent = detail("send", *by("me"), *HOURLY, "--body", '"padded"')
    assert sent["stream_seq"] == 1
    (read,) = detail("stream", *BEARER, *HOURLY)
    assert (read["body"], read["msg_id"]) == ("padded", sent["msg_id"])
    done = call_in_home(
        "send", *by("me"), "--stream", "record/hourly", "--epoch-sec", "3600", "--body", "1"
    )
    assert (done.code, "E.FORMAT/PROFILE" in done.err) == (4, True)


def test_attachments_must_be_all_there_unchanged_and_in_place(
    cli_home: Path, call_in_home: Veen, detail: Callable[..., Any]
) -> None:
    for name in ("a", "b"):
        (cli_home / name).write_bytes(name.encode() * 1000)
    attach = ("--attach", "a", "--attach", "b")
    detail("send", *by("me"), *LINE, "--body", "{}", *attach, "--dump-msg", "m.cbor")
    check = ("attachment", "verify", "--msg", "m.cbor", "--client", "me")
    swapped = ("--file", "b", "--file", "a")
    assert len(detail(*check, "--file", "a", "--file", "b")["attachments"]) == 2
    assert len(detail(*check, *swapped, "--index", "1", "--index", "0")["attachments"]) == 2
    assert call_in_home(*check, *swapped).code == 3
    assert call_in_home(*check, "--file", "a").code == 3
    assert call_in_home(*check, *swapped, "--index", "1", "--index", "1").code == 1
    (cli_home / "b").write_bytes(b"c" + b"b" * 999)
    assert call_in_home(*check, "--file", "a", "--file", "b").code == 3
    other = call_in_home(
        "attachment", "verify", "--msg", "m.cbor", "--client", "auditor", "--file", "a"
    )
    assert (other.code, "not sealed" in other.err) == (3, True)


def test_a_receipt_is_checked_as_far_as_one_may_read(
    cli_home: Path, call_in_home: Veen, detail: Callable[..., Any]
) -> None:
    dump = ("--dump-msg", "msg", "--dump-receipt", "receipt")
    detail("send", *by("me"), *LINE, "--body", "{}", *dump)
    files = ("--receipt", "receipt", "--msg", "msg")
    result = detail("verify-receipt", *BEARER, *LINE, *files)
    assert result["checked"].endswith("I3, consistency, inclusion")
    blind = call_in_home("verify-receipt", *by("me"), *LINE, *files)
    assert (blind.code, "I3" in blind.out) == (0, False)
    assert "not checked against the log" in blind.err
    assert call_in_home("verify-receipt", *BEARER, "--stream", "record/line-2", *files).code == 3
    raw = (cli_home / "receipt").read_bytes()
    (cli_home / "receipt").write_bytes(raw[:-1] + bytes([raw[-1] ^ 1]))
    assert call_in_home("verify-receipt", *BEARER, *LINE, *files).code == 3


def test_follow_prints_what_comes_until_it_is_interrupted(
    cli_home: Path, detail: Callable[..., Any]
) -> None:
    sent = detail("send", *by("me"), *LINE, "--body", '"now"')
    command = [str(cli_binary.VEEN), "stream", *AUDITOR, *LINE, "--follow", "--json"]
    with subprocess.Popen(
        [*command, "--from", str(sent["stream_seq"])],
        cwd=cli_home,
        env=cli_binary.environment(cli_home),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None
        assert json.loads(process.stdout.readline())["msg_id"] == sent["msg_id"]
        later = detail("send", *by("me"), *LINE, "--body", '"later"')
        assert json.loads(process.stdout.readline())["msg_id"] == later["msg_id"]
        process.send_signal(signal.SIGINT)
        assert process.communicate(timeout=30) == (b"", b"")
    assert process.returncode == 130


def test_a_passphrase_is_needed_and_must_be_the_right_one(
    cli_home: Path, call_in_home: Veen
) -> None:
    (cli_home / "pass").write_text("correct horse\n")
    (cli_home / "wrong").write_text("battery staple\n")
    assert call_in_home("keygen", "--out", "sealed", "--passphrase-file", "pass").code == 0
    rotate = ("id", "rotate", "--client", "sealed")
    assert call_in_home(*rotate).code == 1
    assert call_in_home(*rotate, "--passphrase-file", "wrong").code == 4
    assert call_in_home(*rotate, VEEN_PASSPHRASE="correct horse").code == 0


def test_an_identity_is_not_rotated_while_events_wait(call_in_home: Veen, detail: Any) -> None:
    detail("keygen", "--out", "busy", "--insecure-plain")
    detail("send", *by("busy"), *LINE, "--body", "1", "--queue")
    done = call_in_home("id", "rotate", "--client", "busy")
    assert (done.code, "1 events wait" in done.err) == (4, True)
    detail("outbox", "flush", *by("busy"))
    detail("id", "rotate", "--client", "busy")


def test_faults_of_a_directory_are_one_document(cli_home: Path, call_in_home: Veen) -> None:
    assert call_in_home("hub", "stop", "--data-dir", "hub").code == 0
    chunk = next((cli_home / "hub" / "log").glob("chunk-*"))
    raw = bytearray(chunk.read_bytes())
    raw[100] ^= 1
    chunk.write_bytes(raw)
    check = ("hub", "verify", "--data-dir", "hub", "--config", "hub.toml")
    done = call_in_home(*check, "--json")
    document = json.loads(done.out)
    assert (done.code, done.err, document["ok"], document["code"]) == (3, "", False, "FAULTS")
    assert document["faults"][0]["file"] in document["detail"]
    plain = call_in_home(*check, "--quiet")
    assert (plain.code, plain.out, plain.err.count("\n")) == (3, "", 1)
