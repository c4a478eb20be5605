"""A log in memory for the tests of folds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

import pytest

from support.overlay import overlay_histories
from veen import mmr
from veen.crypto import SigningKey
from veen.digest import h
from veen.overlay.fold import FoldSummary, Node, SeqRun, SignedRoot
from veen.overlay.overlay import Event
from veen.receipt import Receipt

HUB = SigningKey(b"hub key seed".ljust(32, b"."))
LABEL = h(b"a label")


class Log:
    """A label with signed receipts, and a cache of summaries; it counts what is asked of it."""

    def __init__(self, events: Iterable[Event]) -> None:
        self.all = tuple(events)
        self.cache: dict[Node, FoldSummary] = {}
        self.asked: Counter[str] = Counter()
        self.roots = [b""]
        peaks = mmr.EMPTY
        for event in self.all:
            peaks = peaks.append(h(b"leaf" + event.body))
            self.roots.append(peaks.root())

    def summary(self, node: Node) -> FoldSummary | None:
        self.asked["summary"] += 1
        return self.cache.get(node)

    def keep(self, summary: FoldSummary) -> None:
        size = (summary.to_seq - summary.from_seq + 1) // summary.block
        node = Node(
            summary.block, size.bit_length() - 1, (summary.to_seq // summary.block // size) - 1
        )
        assert node not in self.cache
        self.cache[node] = FoldSummary.decode(summary.encode())

    def root(self, upto_seq: int) -> SignedRoot:
        plain = Receipt(
            label=LABEL, stream_seq=upto_seq, leaf_hash=bytes(32), mmr_root=self.roots[upto_seq],
            hub_ts=1_700_000_000,
        )  # fmt: skip
        return SignedRoot.of_receipt(plain.signed(HUB))

    def events(self, run: SeqRun) -> Iterable[Event]:
        self.asked["events"] += run.size
        return self.all[run.from_seq - 1 : run.to_seq]


def as_event(message: Any) -> Event:
    return Event(
        stream_seq=message.stream_seq, hub_ts=message.hub_ts, client_id=message.client_id,
        schema=message.schema, body=message.body,
    )  # fmt: skip


@pytest.fixture(scope="session")
def a_history() -> Callable[..., list[Any]]:
    """Messages with their meaning, as ``overlay_histories.history`` draws them for an overlay."""

    def build(seed: int, size: int, overlay: str) -> list[Any]:
        anies: list[Any] = overlay_histories.history(seed, size, overlay_histories.SCHEMAS[overlay])
        return anies

    return build


@pytest.fixture(scope="session")
def new_fold_log() -> Callable[[Iterable[Any]], Log]:
    return lambda messages: Log(map(as_event, messages))


@pytest.fixture(scope="session")
def label() -> bytes:
    return LABEL


@pytest.fixture(scope="session")
def an_event() -> Callable[..., Event]:
    """An event with the given body as a tree; a test names only what it changes."""

    def build(schema: bytes, body: Any, stream_seq: int = 1, **changes: Any) -> Event:
        raw = body if isinstance(body, bytes) else overlay_histories.cbor(body)
        values: dict[str, Any] = {"hub_ts": 1_700_000_000, "client_id": h(b"client")} | changes
        return Event(stream_seq=stream_seq, schema=schema, body=raw, **values)

    return build
