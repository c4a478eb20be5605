"""What a person sees beside results: progress, notices, and nothing that a terminal would obey."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
import time
from collections.abc import Iterator
from contextvars import copy_context
from pathlib import Path

import pytest

from cli import console
from cli.console import (
    GlobalOptions,
    apply_global_options,
    notice,
    printable,
    progress,
    show,
    watching,
)
from support.cli import cli_binary


@pytest.fixture(autouse=True)
def usual() -> Iterator[None]:
    """Each test begins as a command does."""
    token = console._global_options.set(GlobalOptions())
    yield
    console._global_options.reset(token)


def test_text_of_others_stays_on_its_line_and_has_no_escapes() -> None:
    assert printable("a\nb\x1b[31mc\x07\u202e") == "a\\nb\\x1b[31mc\\x07\\u202e"
    assert printable("żółw 🐢") == "żółw 🐢"


def test_a_document_has_a_line_for_each_entry_and_each_element(
    capsys: pytest.CaptureFixture[str],
) -> None:
    show({"a": "x\ny", "b": [{"c": 1, "d": None}, {"c": 2, "d": True}], "e": [], "f": {}})
    assert capsys.readouterr().out == ("a: x\\ny\nb: c=1 d=none\nb: c=2 d=true\ne: none\nf: none\n")


def test_times_are_shown_as_iso_8601_beside_the_number(
    capsys: pytest.CaptureFixture[str],
) -> None:
    document = {
        "hub_ts": 1763522400,
        "valid_until": None,
        "expires_at": 2**64 - 1,
        "events": [{"event_time": 1763522400001}],
        "body": {"created_at": 1763522400},
    }
    show(document)
    assert capsys.readouterr().out.splitlines() == [
        "hub_ts: 2025-11-19T03:20:00Z (1763522400)",
        "valid_until: none",
        "expires_at: 18446744073709551615",
        "events: event_time=2025-11-19T03:20:00.001Z (1763522400001)",
        "body: created_at=1763522400",
    ]
    apply_global_options(GlobalOptions(json=True))
    show(document)
    assert json.loads(capsys.readouterr().out) == document | {
        "ok": True,
        "hub_ts_iso": "2025-11-19T03:20:00Z",
        "events": [
            {"event_time": 1763522400001, "event_time_iso": "2025-11-19T03:20:00.001Z"},
        ],
    }


def test_options_before_and_after_a_command_add_up() -> None:
    def both() -> GlobalOptions:
        apply_global_options(GlobalOptions(json=True, timeout_ms=5))
        apply_global_options(GlobalOptions(quiet=True, timeout_ms=7))
        return console.global_options()

    assert copy_context().run(both) == GlobalOptions(json=True, quiet=True, timeout_ms=7)


def test_no_notice_and_no_progress_when_quiet(capsys: pytest.CaptureFixture[str]) -> None:
    apply_global_options(GlobalOptions(quiet=True))
    notice("hello")
    with progress("work") as report:
        report(1, 2)
    assert capsys.readouterr() == ("", "")


def test_a_line_every_ten_seconds_where_there_is_no_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 100.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    with progress("verify", "messages") as report:
        for now in (101.0, 109.9, 110.0, 119.0, 120.5):
            report(int(now), 200 if now < 120 else None)
    assert capsys.readouterr().err == (
        "verify: 110 of 200 messages, 11/s, 8 s left\nverify: 120 messages, 5.85/s\n"
    )


def test_many_short_parts_of_a_long_work_are_reported_every_ten_seconds(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 100.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    watch = watching()
    for number in range(1, 8):
        with watch(f"carrier {number}", "bytes") as report:
            report(0, 8)
            now += 4.0
            report(8, 8)
    assert capsys.readouterr().err == (
        "carrier 3: 8 of 8 bytes, 2/s, 0 s left\ncarrier 6: 8 of 8 bytes, 2/s, 0 s left\n"
    )


def test_a_part_that_begins_when_a_line_is_due_is_reported_at_once(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 100.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    watch = watching()
    now = 110.0
    with watch("hashing", "bytes") as report:
        report(0, 8)
    assert capsys.readouterr().err == "hashing: 0 of 8 bytes, 0/s\n"


def test_a_bar_on_a_terminal(tmp_path: Path) -> None:
    code = (
        "from cli.console import progress\n"
        "with progress('verify', 'entries') as report:\n"
        "    report(1, 4); report(4, 4)\n"
    )
    ours, theirs = pty.openpty()
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env={**cli_binary.environment(tmp_path), "TERM": "xterm"},
        stderr=theirs,
        stdout=subprocess.PIPE,
        check=True,
    )
    os.close(theirs)
    shown = os.read(ours, 65_536).decode()
    os.close(ours)
    assert done.stdout == b""
    assert "verify" in shown
    assert "4/4" in shown
