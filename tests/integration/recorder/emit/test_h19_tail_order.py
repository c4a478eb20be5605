"""H19: rotated files are read in the order of their names, whatever the clock did."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from recorder.emit.emitter import NoEvent
from recorder.emit.tail_files import RotationOrder
from recorder.timestamp import TimeUnit, event_time
from support.recorder.tailed_log import Log
from veen.client.outbox import Note


@pytest.fixture
def log(offline_emitter: Any, tmp_path: Path) -> Log:
    (tmp_path / "logs").mkdir()
    return Log(tmp_path / "logs", offline_emitter)


def rotate_to(log: Log, suffix: str, mtime: int) -> None:
    name = log.path.with_name(f"app.log{suffix}")
    log.path.rename(name)
    os.utime(name, (mtime, mtime))
    log.path.touch()


def test_h19_a_clock_set_back_loses_no_line_of_files_with_dates(log: Log) -> None:
    log.write(1)
    log.read()
    for day in (16, 17, 18):
        log.write(1)
        rotate_to(log, f"-202611{day}", mtime=100_000 - day)
    log.write(1)
    log.read()
    assert log.numbers() == [0, 1, 2, 3, 4]


def test_h19_a_date_before_one_that_was_read_already_is_no_trouble(log: Log) -> None:
    log.write(1)
    log.read()
    rotate_to(log, "-20261118", mtime=1_000)
    log.write(1)
    log.read()
    rotate_to(log, "-20261117", mtime=900)
    log.write(1)
    log.read()
    assert log.numbers() == [0, 1, 2]


def test_h19_stops_where_an_unread_file_is_older_by_its_name(log: Log) -> None:
    log.write(1)
    log.read()
    rotate_to(log, "-20261118", mtime=1_000)
    log.write(1)
    rotate_to(log, "-20261117", mtime=900)
    log.write(1)
    with pytest.raises(RotationOrder, match=r"app\.log-20261117 is older .* app\.log-20261118"):
        log.read()
    assert log.numbers() == [0]
    log.path.with_name("app.log-20261117").rename(log.path.with_name("app.log-20261119"))
    log.read()
    assert log.numbers() == [0, 1, 2]


def test_h19_stops_where_names_of_two_forms_have_no_order(log: Log) -> None:
    log.write(1)
    log.read()
    log.write(1)
    rotate_to(log, "-20261118", mtime=1_000)
    log.write(1)
    rotate_to(log, ".1", mtime=2_000)
    with pytest.raises(RotationOrder, match="different forms"):
        log.read()


def test_h19_a_finished_file_that_grows_is_not_lost_in_silence(log: Log) -> None:
    log.write(1)
    log.read()
    log.rotate()
    log.write(1)
    log.read()
    with log.rotated(1).open("ab") as late:
        late.write(log.a_line(n=7))
    with pytest.raises(RotationOrder, match="has changed since it was read"):
        log.read()


def test_h19_a_new_file_with_the_inode_of_a_deleted_one_is_read(log: Log) -> None:
    log.write(1)
    log.read()
    for _ in range(5):
        log.write(1)
        rotate_to(log, "-20261118", mtime=1_000)
        log.read()
        log.write(1)
        log.read()
        log.path.with_name("app.log-20261118").unlink()
    assert log.numbers() == list(range(11))


def test_h19_a_position_of_the_release_before_goes_on(log: Log) -> None:
    log.write(1)
    log.rotate()
    log.write(1)
    log.read()
    position = log.tail().position()
    assert position is not None
    assert len(position.finished or ()) == 1
    before = replace(position, finished=None)
    log.emitter.store([], note=Note("tail", before.encode()))
    log.rotate()
    log.write(1)
    log.read()
    assert log.numbers() == [1, 2]


def test_h19_a_leap_second_is_read() -> None:
    after = event_time("2017-01-01T00:00:00Z", TimeUnit.MS)
    assert event_time("2016-12-31T23:59:60Z", TimeUnit.MS) == after
    assert event_time("2016-12-31T23:59:60.250Z", TimeUnit.MS) == after + 250
    assert event_time("2017-01-01T05:29:60+05:30", TimeUnit.MS) == after


@pytest.mark.parametrize(
    "text", ["2016-12-31T23:58:60Z", "2016-12-31T23:59:61Z", "2016-12-31T23:59:60"]
)
def test_h19_second_60_elsewhere_is_no_time(text: str) -> None:
    with pytest.raises(NoEvent):
        event_time(text, TimeUnit.MS)
