"""Recorder events from a program to a hub: built, kept, sealed, sent, and their receipts verified.

The hub has two workers and shares the cores with its client. It is compared with the bare work
that an event contains: one seal, the signatures of its MSG and of its RECEIPT, one verification.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

import bare
import client_send
import feed
import served
from measure import Measurement, compare_timed

from recorder.emit.emitter import Emitter, Observation
from recorder.stream_map import RecorderStream, RecorderStreamMap
from veen.client.sender import BATCH

ROUNDS = 7
EVENTS = 8 * BATCH
BARE = 1_000
STREAMS = RecorderStreamMap([RecorderStream(name=feed.STREAM, event_types=("order.placed",))], ())
PAYLOAD = {"order": 4711, "amount": 12.5, "lines": ["x" * 40] * 8, "note": "y" * 60}


def measure() -> Iterator[Measurement]:
    with served.hub() as hub, client_send.client(hub) as item:
        emitter = Emitter(item, STREAMS, clock=lambda: time.time_ns() // 1_000_000)
        emit(emitter, BATCH)
        result = compare_timed(bare_work, lambda: emit(emitter, EVENTS), ROUNDS)
    yield Measurement(
        bench="recorder_emit",
        value=1 / result.other_seconds,
        unit="events/s",
        against="bare work of the same event: a seal, two signatures, one verification",
        ratio=result.ratio,
        at_least=0.60,
    )


def bare_work() -> float:
    """Seconds of one seal, two signatures and one verification, one after another."""
    return client_send.bare_seal() + 2 * bare.issue(BARE) + bare.verify(BARE)


def emit(emitter: Emitter, count: int) -> float:
    """Seconds of one event, from what a program says to its verified receipt."""
    begun = time.perf_counter()
    emitter.emit_many(
        Observation(event_type="order.placed", subject_id="u:7", origin="shop", payload=PAYLOAD)
        for _ in range(count)
    )
    assert emitter.flush().acknowledged == count
    return (time.perf_counter() - begun) / count
