"""H18: the index follower outlives what fails in it, and reports when it does not follow."""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil  # type: ignore[import-untyped]
import pytest

from recorder.index.reader import IndexStatus, status
from recorder.index.tables import IndexHome, NoIndex
from recorder.service import follower_report
from recorder.service.follower_report import (
    ELSEWHERE,
    ENDED,
    FAILED,
    FOLLOWING,
    SILENT_SEC,
    FollowerReport,
    Reporter,
)
from recorder.service.runner import Following
from support.client.man_in_the_middle import Answer, Middle
from support.client.refusing_plan import path_of
from support.recorder import index_recorded

WAIT_SEC = 30.0


class Follower:
    """The thread of the query service over an index of its own."""

    def __init__(self, folder: Path, reader: Any) -> None:
        self.home = IndexHome(folder / "index")
        self.report = folder / "report.json"
        self._reader = reader

    @contextmanager
    def running(self, openers: int = 0) -> Iterator[None]:
        following = Following(self._reader, self.home, openers, Reporter(self.report))
        following.start()
        try:
            yield
        finally:
            following.stop()

    def status(self) -> IndexStatus | None:
        try:
            return status(self.home, int(time.time()))
        except NoIndex:
            return None

    def indexed(self, stream: str) -> int:
        status = self.status()
        streams = status.streams if status else ()
        return next((item.indexed for item in streams if item.stream == stream), 0)

    def trouble(self) -> str | None:
        status = self.status()
        return status.trouble if status else "no index"

    def restarts(self) -> int:
        result = follower_report.read(self.report)
        return result.restarts if result else 0

    def state(self) -> str | None:
        result = follower_report.read(self.report)
        return result.state if result else None


def wait_until(happened: Callable[[], Any], what: str) -> Any:
    deadline = time.monotonic() + WAIT_SEC
    while not (result := happened()):
        assert time.monotonic() < deadline, what
        time.sleep(0.01)
    return result


@pytest.fixture
def reader(shared_index_hub: Any, open_client: Any) -> Any:
    return open_client(shared_index_hub.url, "reader")


@pytest.fixture
def writer(shared_index_hub: Any, open_client: Any) -> Any:
    return open_client(shared_index_hub.url, "writer")


@pytest.fixture
def follower(tmp_path: Path, reader: Any) -> Follower:
    return Follower(tmp_path, reader)


def test_h18_a_helper_that_is_killed_is_replaced(
    follower: Follower, reader: Any, writer: Any
) -> None:
    stream = "record/7"
    with follower.running(openers=1):
        index_recorded.record(writer, stream, reader, range(10))
        wait_until(lambda: follower.indexed(stream) == 10, "events are indexed")
        (helper,) = helpers()
        helper.kill()
        index_recorded.record(writer, stream, reader, range(10, 20))
        wait_until(lambda: follower.indexed(stream) == 20, "events after the helper's end")
        wait_until(lambda: follower.state() == FOLLOWING, "a report that it follows")
        wait_until(lambda: follower.trouble() is None, "an index without trouble")
    report = follower_report.read(follower.report)
    assert report is not None
    assert (report.state, report.restarts) == (ENDED, 1)


def helpers() -> list[psutil.Process]:
    children = psutil.Process().children()
    return [
        child
        for child in children
        if any("veen.system.process_pool" in word for word in child.cmdline())
    ]


def test_h18_a_disk_that_was_full_for_a_moment_is_no_end(
    follower: Follower, reader: Any, writer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream, is_full = "record/8", [False]
    write = os.pwrite

    def pwrite(fd: int, data: bytes, at: int) -> int:
        if is_full[0] and "/index/" in str(Path(f"/proc/self/fd/{fd}").readlink()):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        result: int = write(fd, data, at)
        return result

    monkeypatch.setattr(os, "pwrite", pwrite)
    with follower.running():
        index_recorded.record(writer, stream, reader, range(10))
        wait_until(lambda: follower.indexed(stream) == 10, "events are indexed")
        is_full[0] = True
        index_recorded.record(writer, stream, reader, range(10, 20))
        wait_until(lambda: follower.state() == FAILED, "a report that it failed")
        detail = follower_report.problem(follower.report)
        assert detail is not None
        assert "No space left" in detail
        assert follower.trouble() is not None
        is_full[0] = False
        wait_until(lambda: follower.indexed(stream) == 20, "events after there was room")
        wait_until(lambda: follower_report.problem(follower.report) is None, "that it follows")


def test_h18_any_other_failure_is_no_end_either(
    follower: Follower, reader: Any, writer: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """An error that nobody foresaw, twice: a file lies where the index has its directory."""
    stream = "record/9"
    follower.home.root.write_text("a note")
    index_recorded.record(writer, stream, reader, range(5))
    with follower.running():
        wait_until(lambda: follower.restarts() >= 2, "two failures")
        follower.home.root.unlink()
        wait_until(lambda: follower.indexed(stream) == 5, "events are indexed")
    raised = [record.exc_info[0] for record in caplog.records if record.exc_info]
    assert len(raised) == follower.restarts()
    assert all(kind is not None and issubclass(kind, OSError) for kind in raised)


class FirstEntryAfterRefusal:
    """A man in the middle: when the hub has refused to read a log, its first entries come."""

    def __init__(self, record: Callable[[], None]) -> None:
        self.refused = 0
        self._record = record

    def reply(self, middle: Middle, request: Answer) -> tuple[bytes, bool]:
        result = middle.ask(request.raw)
        if path_of(request) == b"/v1/stream" and not result.is_ok:
            self.refused += 1
            if self.refused == 1:
                self._record()
        return result.raw, True


def test_h18_a_first_event_between_two_answers_of_the_hub_is_read(
    shared_index_hub: Any, open_client: Any, writer: Any
) -> None:
    """The hub does not know a label without entries; then the first comes before it is asked."""
    stream, middle = "record/10", Middle(shared_index_hub.port)
    reader = open_client(middle.url, "reader")
    reader.meet()
    plan = FirstEntryAfterRefusal(lambda: index_recorded.record(writer, stream, reader, range(3)))
    middle.plan = plan
    result = [item.receipt.stream_seq for item in reader.read(stream)]
    middle.close()
    assert (result, plan.refused) == ([1, 2, 3], 1)


def test_h18_an_index_that_another_process_writes_is_followed_elsewhere(follower: Follower) -> None:
    with follower.home.locked(), follower.running():
        wait_until(lambda: follower.state() == ELSEWHERE, "a report that another follows")
        assert follower_report.problem(follower.report) is None


@pytest.mark.parametrize(
    ("state", "beat", "is_problem"),
    [
        (FOLLOWING, 1_000.0, False),
        (FOLLOWING, 1_000.0 - SILENT_SEC - 1, True),
        (FOLLOWING, 1_001.0, True),  # of another boot, whose clock had gone further
        (ELSEWHERE, 1_000.0, False),
        (FAILED, 1_000.0, True),
        (ENDED, 1_000.0, True),
    ],
)
def test_h18_what_a_report_says(state: str, beat: float, is_problem: bool) -> None:
    report = FollowerReport(state=state, detail="why", restarts=0, beat=beat)
    assert (report.problem(1_000.0) is not None) is is_problem


@pytest.mark.parametrize("text", [None, "", "{", "[]", '{"state": "following"}'])
def test_h18_no_report_is_no_follower(tmp_path: Path, text: str | None) -> None:
    path = tmp_path / "report.json"
    if text is not None:
        path.write_text(text)
    assert follower_report.problem(path) == "no index follower has reported"
