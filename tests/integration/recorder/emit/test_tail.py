"""Following a log file: rotations, partial lines, lines that are no events, files that are gone."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from recorder.emit.json_lines import LineForm
from recorder.emit.tail import OnBadLine, TailGap, TailRun, TailStopped
from recorder.emit.tail_files import CHUNK_BYTES
from recorder.stream_map import UnknownType
from recorder.timestamp import TimeUnit
from support.recorder import recorder_world
from support.recorder.tailed_log import TYPE, Log
from veen.client.transport import Unreachable


@pytest.fixture
def open_log(tmp_path: Path) -> Iterator[Callable[..., Log]]:
    with ExitStack() as closing:

        def make(**changes: Any) -> Log:
            (tmp_path / "logs").mkdir()
            emitter = closing.enter_context(recorder_world.offline_emitter(tmp_path, **changes))
            return Log(tmp_path / "logs", emitter)

        yield make


@pytest.fixture
def log(open_log: Callable[..., Log]) -> Log:
    return open_log()


@pytest.mark.parametrize(
    ("bad", "detail"),
    [
        pytest.param(b"plain text\n", "not JSON.*'plain text'", id="no JSON"),
        pytest.param(b'{"event_type":"?","subject_id":"u","origin":"o"}\n', "no stream", id="type"),
        pytest.param(b"\xff\n", r"\\\\xff", id="no UTF-8"),
        pytest.param(b"x" * (CHUNK_BYTES + 1), "at most 1048576 bytes", id="endless"),
    ],
)
def test_stops_at_a_line_that_is_no_event_with_all_before_it_kept(
    bad: bytes, detail: str, log: Log
) -> None:
    log.write(3)
    offset = log.path.stat().st_size
    log.raw(bad)
    log.write(1)
    for _ in range(2):
        with pytest.raises(TailStopped, match=rf"app\.log, byte {offset}: .*{detail}"):
            log.read()
        assert log.numbers() == [0, 1, 2]


def test_records_a_line_that_is_no_event(log: Log) -> None:
    log.write(1)
    log.raw(b"plain \xff text\n")
    log.write(1)
    log.read(on_bad_line=OnBadLine.RECORD)
    first, bad, last = log.stored()
    assert (first.value()["n"], last.value()["n"]) == (0, 1)
    assert bad.event_type == "log.unparsed"
    assert bad.value()["text"] == "plain \\xff text"
    assert bad.value()["file"] == "app.log"


def test_records_a_long_line_in_pieces_without_a_gap(log: Log) -> None:
    text = bytes(33 + n % 90 for n in range(CHUNK_BYTES + 5_000))
    log.raw(text + b"\n")
    log.write(1)
    log.read(on_bad_line=OnBadLine.RECORD)
    *pieces, last = [item.value() for item in log.stored()]
    assert "".join(piece["text"] for piece in pieces).encode() == text
    assert [piece["offset"] for piece in pieces] == sorted(piece["offset"] for piece in pieces)
    assert last["n"] == 0


def test_refuses_to_record_bad_lines_without_a_stream_for_them(
    open_log: Callable[..., Log],
) -> None:
    log = open_log(streams=[{"name": "record/a", "event_types": [TYPE]}])
    with pytest.raises(UnknownType, match=r"log\.unparsed"):
        log.tail(on_bad_line=OnBadLine.RECORD)


def test_waits_for_a_file_that_is_not_there_yet(log: Log) -> None:
    assert log.tail().step().is_idle
    log.write(2)
    log.read()
    assert log.numbers() == [0, 1]


def test_waits_for_the_end_of_a_line(log: Log) -> None:
    whole = log.a_line(n=0)
    log.raw(whole[:20])
    log.read()
    assert log.numbers() == []
    log.raw(whole[20:])
    log.read()
    log.read()
    assert log.numbers() == [0]


def test_begins_with_the_file_of_that_name_not_with_older_ones(log: Log) -> None:
    log.write(1)
    log.rotate()
    log.write(1)
    log.read()
    assert log.numbers() == [1]


def test_the_last_line_of_a_rotated_file_needs_no_end(log: Log) -> None:
    log.write(1)
    log.read()
    log.raw(log.a_line(n=1).rstrip())
    log.rotate()
    log.number = 2
    log.write(1)
    log.read()
    assert log.numbers() == [0, 1, 2]


def test_what_is_still_written_to_a_rotated_file_is_waited_for(log: Log) -> None:
    log.write(1)
    log.read()
    log.rotate()
    log.write(1)
    log.read(settle_ms=60_000)
    assert log.numbers() == [0]
    with log.rotated(1).open("ab") as late:
        late.write(log.a_line(n=7))
    log.read(settle_ms=60_000)
    assert log.numbers() == [0, 7]
    os.utime(log.rotated(1), (1, 1))
    log.read(settle_ms=60_000)
    assert log.numbers() == [0, 7, 1]


@pytest.mark.parametrize("stops", [(), (0,), (1, 3), (0, 1, 2, 3, 4, 5)])
def test_several_rotations_while_nobody_read(log: Log, stops: tuple[int, ...]) -> None:
    log.write(2)
    log.read()
    for turn in range(6):
        log.write(turn % 3)
        if turn in stops:
            log.read()
        log.rotate()
        log.write(turn % 2)
    log.read()
    assert log.numbers() == list(range(log.number))


def test_a_copied_and_emptied_file_is_finished_in_its_copy(log: Log) -> None:
    log.write(2)
    log.read()
    log.write(3)
    log.copy_and_truncate()
    log.write(1)
    log.read()
    assert log.numbers() == list(range(6))


def test_an_emptied_file_that_grew_beyond_the_position_is_noticed(log: Log) -> None:
    log.write(2)
    log.read()
    log.write(1)
    log.copy_and_truncate()
    log.write(40)
    log.read()
    assert log.numbers() == list(range(43))


def test_an_emptied_file_without_a_copy_is_a_gap(log: Log) -> None:
    log.write(2)
    log.read()
    os.truncate(log.path, 0)
    with pytest.raises(TailGap, match=r"app\.log: .*is gone.*--accept-gap"):
        log.read()


def test_a_file_that_is_gone_is_a_gap_that_can_be_accepted(log: Log) -> None:
    log.write(2)
    log.read()
    log.path.unlink()
    log.write(2)
    with pytest.raises(TailGap):
        log.read()
    tail = log.tail(accept_gap=True)
    tail.step()
    assert tail.gaps == 1
    assert log.numbers() == [0, 1, 2, 3]


@pytest.mark.parametrize(
    "suffix",
    [
        ".1", ".00042", "-20261116", "-2026111610", "-20261116-1763290800", ".2026-11-16",
        ".2026-11-16_10", ".2026-11-16_10-30-00", ".2026-11-16T10:30:00Z", "-20261116.1",
        ".1763290800",
    ],
)  # fmt: skip
def test_a_file_that_was_rotated_to_a_number_or_a_date_is_finished(log: Log, suffix: str) -> None:
    log.write(1)
    log.read()
    log.write(1)
    log.path.rename(log.path.with_name(f"app.log{suffix}"))
    log.write(1)
    log.read()
    assert log.numbers() == [0, 1, 2]


FOREIGN = (
    "app.log.2.gz", "app.logs", "other.log", "app.log.err", "app.log-errors", "app.log.1.swp",
    "app.log.bak", "app.log.", "app.log-", "app.log.2x", "app.log.2026-11-16.gz", "app.log1",
    "app.log.lock", "app.log.\u0663",
)  # fmt: skip


def test_compressed_and_foreign_files_are_left_alone(log: Log) -> None:
    log.write(1)
    log.read()
    for name in FOREIGN:
        log.path.with_name(name).write_bytes(b"something else\n")
    log.path.with_name("app.log.3").symlink_to("other.log")
    log.rotate()
    log.write(1)
    log.read()
    assert log.numbers() == [0, 1]


def test_empty_files_may_be_rotated_for_ever(log: Log) -> None:
    log.write(1)
    log.read()
    for turn in range(6):
        log.rotate()
        if turn > 3:
            log.rotated(4).unlink()
        log.read()
    log.write(1)
    log.read()
    assert log.numbers() == [0, 1]


def test_the_fields_of_a_line_are_those_one_names(log: Log) -> None:
    line = {"level": TYPE, "user": "u:1", "ts": 1.25, "msg": "hello", "svc": "shop"}
    log.raw(json.dumps(line).encode() + b"\r\n")
    form = LineForm(
        event_type="level", subject_id="user", origin="svc", event_time="ts", payload=None,
        time_unit=TimeUnit.SECONDS,
    )  # fmt: skip
    log.read(form=form)
    (event,) = log.stored()
    assert (event.event_type, event.subject_id, event.origin) == (TYPE, "u:1", "shop")
    assert (event.event_time, event.value()) == (1_250, {"msg": "hello"})


def test_reading_goes_on_while_the_hub_does_not_answer(log: Log) -> None:
    detail: list[str] = []
    run = TailRun(log.tail(), log.emitter, detail.append)
    log.write(2)
    run.turn()
    run.turn()
    log.write(2)
    run.turn()
    assert log.numbers() == [0, 1, 2, 3]
    assert len(detail) == 1
    with pytest.raises(Unreachable):
        run.catch_up(lambda _: None, 0)
