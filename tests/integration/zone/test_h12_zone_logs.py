"""H12: every log of a zone is kept to a size, and the last lines are read from the end."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from zone import logs
from zone.directory import ZoneHome
from zone.logs import MAX_BYTES, bound, last_words, rotate
from zone.services import ZoneService
from zone.state import start
from zone.supervisor import Supervisor

MakeZone = Callable[..., ZoneHome]
WRITES = """
import sys
for number in range(int(sys.argv[1])):
    print(f"line {number:08d}", flush=True)
"""


def loses_nothing(folder: Path) -> bool:
    """Whether the file system can cut off the beginning of a file."""
    with (folder / "probe").open("w+b") as file:
        file.write(bytes(10 * 4096))
        file.flush()
        return logs._cut_off(file.fileno(), 4096)


def test_h12_a_small_log_and_a_missing_one_are_let_be(tmp_path: Path) -> None:
    log = tmp_path / "hub.log"
    assert not rotate(log, 10)
    log.write_bytes(b"0123456789")
    assert not rotate(log, 10)
    assert log.read_bytes() == b"0123456789"


def test_h12_logs_are_rotated_by_size_and_the_oldest_goes(tmp_path: Path) -> None:
    log = tmp_path / "hub.log"
    for number in range(5):
        log.write_bytes(b"%d" % number * 11)
        log.chmod(0o600)
        assert rotate(log, 10, backups=3)
        assert log.read_bytes() == b""
    result = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    assert result == {
        "hub.log": b"", "hub.log.1": b"4" * 11, "hub.log.2": b"3" * 11, "hub.log.3": b"2" * 11,
    }  # fmt: skip
    assert (tmp_path / "hub.log.1").stat().st_mode & 0o777 == 0o600


def test_h12_a_process_goes_on_writing_through_a_rotation(tmp_path: Path, a_zone: MakeZone) -> None:
    """It holds its log open as the supervisor opened it; what it writes next is at the start."""
    home, count = a_zone(tmp_path / "z1", "alone"), 40_000
    log = tmp_path / "part.log"
    service = ZoneService(
        name="part", command=[sys.executable, "-c", WRITES, str(count)], probe=lambda _: True
    )
    process, rotations = start(service, home, dict(os.environ), log), 0
    while process.poll() is None:
        rotations += rotate(log, 100_000, backups=50)
        time.sleep(0.001)
    assert process.returncode == 0
    assert rotations > 1
    rotated = [log.with_name(f"part.log.{number}") for number in range(rotations, 0, -1)]
    text = b"".join(item.read_bytes() for item in (*rotated, log))
    assert b"\0" not in text
    assert text.endswith(b"line %08d\n" % (count - 1))
    if loses_nothing(tmp_path):
        assert text.splitlines() == [b"line %08d" % number for number in range(count)]


def test_h12_without_room_for_a_copy_a_log_is_emptied_all_the_same(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    log = tmp_path / "hub.log"
    (tmp_path / ".hub.log.new").mkdir()  # nothing can be written there
    log.write_bytes(bytes(15))
    assert not rotate(log, 10)
    log.write_bytes(bytes(21))
    assert rotate(log, 10)
    assert log.stat().st_size == 0
    assert "21 bytes of log dropped" in caplog.text


def test_h12_the_last_words_of_a_huge_log_are_read_from_its_end(tmp_path: Path) -> None:
    log = tmp_path / "hub.log"
    with log.open("wb") as file:
        file.truncate(1 << 40)  # a hole of a terabyte
        file.seek(0, os.SEEK_END)
        file.write(b"\none\ntwo\nthree\nfour\n")
    assert last_words(log) == "two | three | four"
    log.write_bytes(b"")
    assert last_words(log) == "it said nothing"
    assert "cannot be read" in last_words(tmp_path / "missing")


def test_h12_the_supervisor_rotates_every_log_of_its_zone(tmp_path: Path, a_zone: MakeZone) -> None:
    home = a_zone(tmp_path / "z1", "alone")
    home.logs.mkdir()
    supervisor = Supervisor(home, None, rotate_sec=0.0)
    names = [part.log.name for part in supervisor.parts] + ["supervisor.log"]
    for name in names:
        with (home.logs / name).open("wb") as file:
            file.truncate(MAX_BYTES + 1)
    supervisor.parts = ()
    supervisor._rotate_logs()
    assert len(names) == 9
    for name in names:
        assert (home.logs / name).stat().st_size < 10_000
        assert (home.logs / f"{name}.1").stat().st_size > MAX_BYTES - 10_000


def test_h12_the_oldest_logs_of_task_runs_go_when_all_take_too_much(tmp_path: Path) -> None:
    for number in range(10):
        path = tmp_path / f"dag_id={number}" / "attempt=1.log"
        path.parent.mkdir()
        path.write_bytes(bytes(100))
        os.utime(path, (number, number))
    (tmp_path / "latest").symlink_to(tmp_path / "dag_id=9")
    assert bound(tmp_path, 1_000, 900) == 0
    (tmp_path / "more.log").write_bytes(bytes(1))
    assert bound(tmp_path, 1_000, 900) == 2
    assert not (tmp_path / "dag_id=1" / "attempt=1.log").exists()
    assert (tmp_path / "dag_id=2" / "attempt=1.log").exists()
    assert logs.bound(tmp_path / "missing") == 0


def test_h12_a_full_disk_does_not_keep_a_part_from_starting(
    tmp_path: Path, a_zone: MakeZone
) -> None:
    home = a_zone(tmp_path / "z1", "alone")
    service = ZoneService(name="part", command=["echo", "said"], probe=lambda _: True)
    process = start(service, home, dict(os.environ), tmp_path / "no such folder" / "part.log")
    assert process.wait(20) == 0
    assert isinstance(process, subprocess.Popen)
