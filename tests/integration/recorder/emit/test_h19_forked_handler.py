"""H19: what a forked process logs is recorded by the process that has the outbox."""

from __future__ import annotations

import logging
import os
import warnings
from collections.abc import Callable
from typing import Any

import pytest

from recorder.emit.emitter import Emitter
from recorder.emit.log_handler import LogMapping, RecorderHandler
from recorder.stream_map import UnknownType
from support.recorder.logged_records import MAPPING, stored

CHILDREN, LINES = 4, 1_000


def forked(work: Callable[[], None]) -> int:
    """A child that does the work and ends with 0, or with 1 where it raised."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        work()
        code = 0
    finally:
        os._exit(code)


def ended(pid: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def a_record(text: str) -> logging.LogRecord:
    return logging.LogRecord("shop", logging.INFO, "f", 1, text, None, None)


def test_h19_every_record_of_forked_processes_is_recorded_or_counted(
    offline_emitter: Emitter,
) -> None:
    handler = RecorderHandler(offline_emitter, MAPPING, wait_sec=60)
    handler.handle(a_record("parent"))

    def work(child: int) -> None:
        for number in range(LINES):
            handler.handle(a_record(f"{child}:{number}"))
        handler.close()

    pids = [forked(lambda child=child: work(child)) for child in range(CHILDREN)]  # type: ignore[misc]
    assert [ended(pid) for pid in pids] == [0] * CHILDREN
    handler.close()
    messages = [event.value()["message"] for event in stored(offline_emitter)]
    due = {f"{child}:{number}" for child in range(CHILDREN) for number in range(LINES)}
    assert sorted(messages) == sorted({"parent", *due})
    assert handler.dropped == 0
    for child in range(CHILDREN):
        own = [text for text in messages if text.startswith(f"{child}:")]
        assert own == [f"{child}:{number}" for number in range(LINES)]


def test_h19_a_forked_process_that_logs_too_much_is_counted(offline_emitter: Emitter) -> None:
    handler = RecorderHandler(offline_emitter, MAPPING)
    handler.handle(a_record("parent"))

    def work() -> None:
        handler.handle(a_record("x" * (4 << 20)))
        handler.close()

    assert ended(forked(work)) == 0
    handler.close()
    cut = [event.value() for event in stored(offline_emitter) if event.value().get("cut")]
    assert len(cut) == 1
    assert cut[0]["message"].startswith("xxx")


def test_h19_without_the_parent_the_loss_is_said_and_counted(offline_emitter: Emitter) -> None:
    handler = RecorderHandler(offline_emitter, MAPPING)
    reading, writing = os.pipe()

    def work() -> None:
        assert os.read(reading, 1) == b"x"
        handler.handle(a_record("lost"))
        assert handler.dropped == 1
        with pytest.warns(RuntimeWarning, match="make the handler after the fork"):
            handler.close()

    pid = forked(work)
    handler.close()
    os.write(writing, b"x")
    assert ended(pid) == 0
    os.close(reading)
    os.close(writing)


def test_h36_a_handler_that_is_refused_is_nowhere(offline_emitter: Emitter) -> None:
    def handlers() -> list[Any]:
        return [ref() for ref in logging._handlerList]  # type: ignore[attr-defined]

    before = handlers()
    with pytest.raises(UnknownType):
        RecorderHandler(offline_emitter, LogMapping(subject_id="s", origin="o", event_type="nope"))
    assert handlers() == before
