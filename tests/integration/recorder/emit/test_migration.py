"""Renames and splits: validated against the configuration, recorded by an admin, read again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from recorder.emit.emitter import NoEvent
from recorder.emit.migration import Stay, migrations, record, rename, split, stays
from recorder.settings import parse
from recorder.stream_map import CHANGES, RecorderStreamMap
from support.recorder import recorder_world
from veen.errors import Malformed
from veen.events import RecordEvent
from veen.wire.body import AnyItem


@pytest.fixture
def streams() -> RecorderStreamMap:
    return parse(recorder_world.a_document(), Path("/")).streams


@pytest.mark.parametrize(
    ("old", "new", "last_seq", "detail"),
    [
        ("app/x", ["record/app/orders"], 1, "expected a stream of record"),
        (CHANGES, ["record/app/orders"], 1, "expected a stream of record"),
        ("record/old", ["record/nowhere"], 1, "'record/nowhere': expected a configured stream"),
        ("record/infrastructure/logs", ["record/app/orders"], 1, "is still configured"),
        ("record/app/orders", ["record/app/orders"], 1, "to itself"),
        ("record/old", ["record/app/orders"], -1, "last_seq = -1"),
        ("record/old", ["record/app/orders"] * 2, 1, "two or more different"),
    ],
)
def test_refuses(
    old: str, new: list[str], last_seq: int, detail: str, streams: RecorderStreamMap
) -> None:
    migrate = split if len(new) > 1 else lambda some, was, now, seq: rename(some, was, now[0], seq)
    with pytest.raises(NoEvent, match=detail):
        migrate(streams, old, new, last_seq)


def test_refuses_to_record_for_anyone_but_an_admin(emit_world: Any) -> None:
    with (
        emit_world.emitter("producer") as emitter,
        pytest.raises(NoEvent, match="is no admin of this recorder"),
    ):
        record(emitter, rename(emitter.streams, "record/old", "record/app/orders", 3), "test")


def test_the_reader_says_where_a_type_was_over_time(emit_world: Any) -> None:
    with emit_world.emitter("admin") as emitter:
        streams = emitter.streams
        record(emitter, rename(streams, "record/older", "record/app/orders", 3), "test")
        both = [recorder_world.ORDERS, recorder_world.LOGS]
        record(emitter, split(streams, "record/old", both, 9), "test")
    history = migrations(emit_world.events(CHANGES))
    here = [Stay("record/older", 3), Stay("record/old", 9), Stay(recorder_world.ORDERS, None)]
    assert stays("order.placed", history, streams) == here
    assert stays("log.line", history, streams) == [
        Stay("record/old", 9),
        Stay(recorder_world.LOGS, None),
    ]


@pytest.mark.parametrize("payload", [b"\xa0", b"\x80", b"\xf6"])
def test_an_event_that_is_no_migration_is_refused(payload: bytes) -> None:
    event = RecordEvent(
        subject_id="s", principal_id=bytes(32), event_type="stream.split", event_time=0,
        origin="o", payload=AnyItem(payload),
    )  # fmt: skip
    with pytest.raises(Malformed):
        migrations([event])
