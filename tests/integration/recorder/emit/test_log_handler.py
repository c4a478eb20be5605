"""The logging handler: nothing waits for the hub, nothing is lost without being counted."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from recorder.emit.emitter import Emitter
from recorder.emit.log_handler import LogMapping, LogRule, RecorderHandler
from recorder.stream_map import UnknownType
from support.client.man_in_the_middle import Middle
from support.client.refusing_plan import TakesNone
from support.recorder import recorder_world
from support.recorder.logged_records import MAPPING, stored
from veen.client.client import Client
from veen.events import RecordEvent


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
    open_hub: Any, tmp_path: Path, attach: Callable[..., RecorderHandler]
) -> None:
    """The outbox is full as long as the hub does not answer."""
    middle = Middle(open_hub.port)
    with recorder_world.bounded_emitter(tmp_path, max_events=25, url=middle.url) as emitter:
        emitter.send(recorder_world.observed())
        middle.plan = TakesNone()
        emitter.emit_many([recorder_world.observed()] * 25)
        handler = attach(emitter, capacity=2)
        for number in range(20):
            logging.getLogger("shop").info("%d", number)
        middle.plan = None
        emitter.flush()
        handler.flush()
        handler.close()
    middle.close()
    with Client.open(tmp_path / "producer", open_hub.url) as client:
        bodies = [client.open_payload(pair.msg).body for pair in client.read(recorder_world.LOGS)]
    result = list(map(RecordEvent.decode, bodies))
    detail = sum(item.value()["dropped"] for item in result if item.event_type == "log.dropped")
    lines = [item for item in result if item.event_type == "log.line"]
    assert detail == handler.dropped > 0
    assert len(lines) + detail == 20


def test_what_can_be_kept_nowhere_is_said_loudly_at_the_end(tmp_path: Path) -> None:
    with recorder_world.bounded_emitter(tmp_path, max_events=1) as emitter:
        emitter.emit(recorder_world.observed())
        handler = RecorderHandler(emitter, MAPPING, retry_sec=0.02, close_sec=0.1)
        handler.handle(logging.LogRecord("shop", logging.ERROR, "f", 1, "lost", None, None))
        with pytest.warns(RuntimeWarning, match="1 log records were dropped"):
            handler.close()


def test_what_was_kept_is_sent_after_a_restart(emit_world: Any, tmp_path: Path) -> None:
    before = len(emit_world.events(recorder_world.LOGS))
    middle = Middle(emit_world.hub.port)
    hub = emit_world.document()["hub"] | {"url": middle.url}
    with emit_world.emitter(hub=hub) as emitter:
        middle.plan = TakesNone()
        handler = RecorderHandler(emitter, MAPPING)
        handler.handle(logging.LogRecord("shop", logging.INFO, "f", 1, "first life", None, None))
        handler.close()
        assert emitter.pending() == 1
    middle.close()
    with emit_world.emitter() as emitter:
        handler = RecorderHandler(emitter, MAPPING)
        handler.handle(logging.LogRecord("shop", logging.INFO, "f", 1, "second", None, None))
        handler.close()
        assert emitter.pending() == 0
    result = [event.value()["message"] for event in emit_world.events(recorder_world.LOGS)[before:]]
    assert result == ["first life", "second"]
