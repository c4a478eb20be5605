"""The logging handler: nothing waits for the hub, nothing is lost without being counted."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from recorder.emit.emitter import Emitter
from recorder.emit.log_handler import LogMapping, LogRule, RecorderHandler
from recorder.stream_map import UnknownType
from support.recorder import recorder_world
from support.recorder.logged_records import MAPPING, stored
from veen.client.outbox import OutboxFull


@pytest.fixture
def attach() -> Iterator[Callable[..., RecorderHandler]]:
    logger, handlers = logging.getLogger("shop"), []
    logger.setLevel(logging.DEBUG)
    logger.propagate = False

    def make(emitter: Emitter, mapping: LogMapping = MAPPING, **more: Any) -> RecorderHandler:
        quick: dict[str, Any] = {"wait_sec": 0.05, "retry_sec": 0.02, "close_sec": 5.0}
        handlers.append(RecorderHandler(emitter, mapping, **(quick | more)))
        logger.addHandler(handlers[-1])
        return handlers[-1]

    yield make
    for item in handlers:
        logger.removeHandler(item)
        item.close()


def test_refuses_types_that_have_no_stream(offline_emitter: Emitter) -> None:
    with pytest.raises(UnknownType):
        RecorderHandler(offline_emitter, LogMapping(subject_id="s", origin="o", event_type="nope"))


def test_records_survive_a_hub_that_is_down(
    offline_emitter: Emitter, attach: Callable[..., RecorderHandler]
) -> None:
    handler = attach(offline_emitter)
    try:
        1 / 0  # noqa: B018
    except ZeroDivisionError:
        logging.getLogger("shop.cart").exception(
            "cart %d", 7, extra={"subject_id": "u:7", "size": 3, "odd": {1}}
        )
    handler.flush()
    (event,) = stored(offline_emitter)
    value = event.value()
    assert (event.event_type, event.subject_id, event.origin) == ("log.line", "u:7", "shop")
    assert (value["message"], value["level"], value["logger"]) == ("cart 7", "ERROR", "shop.cart")
    assert "ZeroDivisionError" in value["exception"]
    assert value["extra"] == {"size": 3, "odd": "{1}"}


def test_the_first_rule_that_speaks_of_a_record_decides(
    offline_emitter: Emitter, attach: Callable[..., RecorderHandler]
) -> None:
    rules = (
        LogRule(logger="shop.orders", level=logging.WARNING, event_type="order.cancelled"),
        LogRule(logger="shop.orders", event_type="order.placed", origin="orders"),
    )
    handler = attach(offline_emitter, LogMapping(subject_id="s", origin="shop", rules=rules))
    logging.getLogger("shop.orders").info("a")
    logging.getLogger("shop.orders.eu").warning("b")
    logging.getLogger("shop.ordersX").info("c")
    handler.flush()
    result = [(item.event_type, item.origin) for item in stored(offline_emitter)]
    assert result == [("order.placed", "orders"), ("order.cancelled", "shop"), ("log.line", "shop")]


def test_a_record_that_is_too_large_is_cut_and_says_so(
    offline_emitter: Emitter, attach: Callable[..., RecorderHandler]
) -> None:
    handler = attach(offline_emitter)
    logging.getLogger("shop").info("x" * 100_000)
    handler.flush()
    (event,) = stored(offline_emitter)
    assert event.value()["cut"] is True
    assert event.value()["message"].startswith("xxx")
    assert handler.dropped == 0


def test_own_loggers_are_not_recorded(
    offline_emitter: Emitter, attach: Callable[..., RecorderHandler]
) -> None:
    handler = attach(offline_emitter)
    for name in ("veen.client.sender", "recorder.emit"):
        handler.handle(logging.LogRecord(name, logging.ERROR, "f", 1, "own", None, None))
    handler.flush()
    assert stored(offline_emitter) == []


def test_what_finds_no_room_is_counted_and_the_count_is_recorded(
    offline_emitter: Emitter,
    attach: Callable[..., RecorderHandler],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    taken, open_again = offline_emitter.store, threading.Event()

    def full(events: Any, **more: Any) -> list[int]:
        if not open_again.is_set():
            raise OutboxFull("full")
        return taken(events, **more)

    monkeypatch.setattr(offline_emitter, "store", full)
    handler = attach(offline_emitter, capacity=2)
    for number in range(20):
        logging.getLogger("shop").info("%d", number)
    open_again.set()
    handler.flush()
    handler.close()
    result = stored(offline_emitter)
    detail = sum(item.value()["dropped"] for item in result if item.event_type == "log.dropped")
    lines = [item for item in result if item.event_type == "log.line"]
    assert detail == handler.dropped > 0
    assert len(lines) + detail == 20


def test_what_can_be_kept_nowhere_is_said_loudly_at_the_end(
    offline_emitter: Emitter, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_events: Any, **_more: Any) -> list[int]:
        raise OutboxFull("full")

    monkeypatch.setattr(offline_emitter, "store", full)
    handler = RecorderHandler(offline_emitter, MAPPING, retry_sec=0.02, close_sec=0.1)
    handler.handle(logging.LogRecord("shop", logging.ERROR, "f", 1, "lost", None, None))
    with pytest.warns(RuntimeWarning, match="1 log records were dropped"):
        handler.close()


def test_what_was_kept_is_sent_after_a_restart(emit_world: Any, tmp_path: Path) -> None:
    before = len(emit_world.events(recorder_world.LOGS))
    with emit_world.emitter() as emitter:
        emitter.flush = lambda *_: None
        handler = RecorderHandler(emitter, MAPPING)
        handler.handle(logging.LogRecord("shop", logging.INFO, "f", 1, "first life", None, None))
        handler.close()
        assert emitter.pending() == 1
    with emit_world.emitter() as emitter:
        handler = RecorderHandler(emitter, MAPPING)
        handler.handle(logging.LogRecord("shop", logging.INFO, "f", 1, "second", None, None))
        handler.close()
        assert emitter.pending() == 0
    result = [event.value()["message"] for event in emit_world.events(recorder_world.LOGS)[before:]]
    assert result == ["first life", "second"]
