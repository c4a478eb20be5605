"""What a fold asks of its cache and of its log, and what it refuses from them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from veen.digest import h, u64be
from veen.errors import Untrusted
from veen.overlay.crdt import Counter, GrowOnlyCounter, Shard
from veen.overlay.fold import (
    BLOCK,
    Fold,
    FoldSummary,
    Node,
    Scope,
    SeqRun,
    SignedRoot,
    SummaryAnchor,
)
from veen.overlay.overlay import Event, Folded
from veen.overlay.snapshot import overlay_named
from veen.wire.body import Integer

SHARD, ELSEWHERE = h(b"shard"), h(b"a label")
WHOLE = SeqRun(1, 40)


@pytest.fixture
def log(a_history: Callable[..., list[Any]], new_fold_log: Callable[..., Any]) -> Any:
    return new_fold_log(a_history(1, 40, "lww.map"))


@pytest.fixture
def fold(log: Any, label: bytes) -> Fold[Any]:
    return Fold(overlay_named("lww.map"), label, log, 4)


def test_a_warm_fold_reads_no_whole_block_again(log: Any, fold: Fold[Any]) -> None:
    due = fold.over(SeqRun(1, 39))
    log.asked.clear()
    assert fold.over(SeqRun(1, 39)) == due
    assert log.asked == {"summary": 2, "events": 3}


def test_every_whole_node_is_kept_once(log: Any, fold: Fold[Any]) -> None:
    fold.over(SeqRun(1, 32))
    assert len(log.cache) == 8 + 4 + 2 + 1
    fold.over(WHOLE)
    assert len(log.cache) == 15 + 3


def test_an_empty_run_is_the_empty_state(log: Any, fold: Fold[Any]) -> None:
    assert fold.over(SeqRun(7, 6)) == fold.overlay.empty()
    assert not log.asked


@pytest.mark.parametrize(
    "change",
    [
        pytest.param({"mmr_root": h(b"another root")}, id="root"),
        pytest.param({"label": h(b"another label")}, id="label"),
        pytest.param({"from_seq": 5}, id="from"),
        pytest.param({"to_seq": 36}, id="to"),
        pytest.param({"block": 8}, id="block"),
        pytest.param({"overlay": "orset"}, id="overlay"),
        pytest.param({"schema_set": h(b"other schemas")}, id="schemas"),
        pytest.param({"payload": b""}, id="payload"),
    ],
)
def test_a_cached_summary_of_something_else_is_refused(
    log: Any, fold: Fold[Any], change: dict[str, Any]
) -> None:
    fold.over(SeqRun(1, 32))
    changed = replace(log.cache[Node(4, 3, 0)], **change)
    log.cache[Node(4, 3, 0)] = replace(changed, digest=changed.expected_digest())
    with pytest.raises(Untrusted):
        fold.over(SeqRun(1, 32))


def test_a_summary_of_a_log_that_has_forked_is_refused(
    log: Any, fold: Fold[Any], new_fold_log: Callable[..., Any], label: bytes
) -> None:
    fold.over(SeqRun(1, 32))
    forked = new_fold_log([replace(log.all[0], body=b"other"), *log.all[1:]])
    forked.cache = dict(log.cache)
    with pytest.raises(Untrusted, match="mmr_root"):
        Fold(fold.overlay, label, forked, 4).over(SeqRun(1, 32))


def test_a_summary_in_the_place_of_another_is_refused(log: Any, fold: Fold[Any]) -> None:
    fold.over(WHOLE)
    log.cache[Node(4, 3, 0)] = log.cache[Node(4, 2, 0)]
    with pytest.raises(Untrusted, match="to_seq"):
        fold.over(WHOLE)


class SpoiledLog:
    """A log that does not hand out all of its events, or not in order."""

    def __init__(self, log: Any, spoil: Callable[[Any], Any]) -> None:
        self.summary, self.keep, self.root = log.summary, log.keep, log.root
        self._events, self._spoil = log.events, spoil

    def events(self, run: SeqRun) -> Any:
        return self._spoil(self._events(run))


@pytest.mark.parametrize(
    "spoil",
    [
        pytest.param(lambda events: events[:-1], id="last one missing"),
        pytest.param(lambda events: events[1:], id="first one missing"),
        pytest.param(lambda events: (*events[:2], *events[3:]), id="gap"),
        pytest.param(lambda events: events[::-1], id="order"),
        pytest.param(lambda events: (events[0], *events), id="one twice"),
        pytest.param(lambda events: events[:0], id="none"),
    ],
)
def test_events_that_are_not_all_there_are_refused(
    log: Any, label: bytes, spoil: Callable[[Any], Any]
) -> None:
    fold: Fold[Any] = Fold(overlay_named("lww.map"), label, SpoiledLog(log, spoil), 4)
    with pytest.raises(Untrusted):
        fold.over(WHOLE)
    assert not log.cache


@dataclass
class Counting(GrowOnlyCounter):
    """The counter, counting its merges."""

    merges: int = 0

    def merge(self, left: Folded[Counter], right: Folded[Counter]) -> Folded[Counter]:
        self.merges += 1
        return super().merge(left, right)


@dataclass
class Endless:
    """A log of any length in which every event adds one, with the summaries of all its nodes."""

    an_event: Callable[..., Event]
    schema: bytes
    lookups: int = 0
    read: int = 0
    body: dict[str, Any] = field(default_factory=lambda: {"shard": SHARD, "delta": 1})

    def summary(self, node: Node) -> FoldSummary:
        self.lookups += 1
        state = Counter(shards=(Shard(shard=SHARD, total=Integer(node.run.size)),))
        payload = GrowOnlyCounter().encode(Folded(state))
        scope = Scope(GrowOnlyCounter(), ELSEWHERE)
        return FoldSummary.of(scope, node, self.root(node.run.to_seq), payload)

    def keep(self, summary: FoldSummary) -> None:
        raise AssertionError(f"{summary.from_seq} to {summary.to_seq} was cached")

    def root(self, upto_seq: int) -> SignedRoot:
        return SignedRoot(
            h(u64be(upto_seq)), SummaryAnchor(kind=1, upto_seq=upto_seq, object_hash=h(b"receipt"))
        )

    def events(self, run: SeqRun) -> Iterable[Event]:
        self.read += run.size
        seqs = range(run.from_seq, run.to_seq + 1)
        return [self.an_event(self.schema, self.body, stream_seq=seq) for seq in seqs]


@pytest.mark.parametrize("size", [10**4, 10**6, 10**9, 10**12])
@pytest.mark.parametrize("first", [1, 777])
def test_a_warm_fold_costs_the_logarithm_of_the_log(
    an_event: Callable[..., Event], size: int, first: int
) -> None:
    (schema,) = GrowOnlyCounter.schemas
    source, overlay = Endless(an_event, schema), Counting()
    folded = Fold(overlay, ELSEWHERE, source).over(SeqRun(first, size))
    assert folded.state.shards[0].total == size - first + 1
    height = (size // BLOCK).bit_length()
    assert source.lookups <= 2 * height
    assert source.read < 2 * BLOCK
    assert overlay.merges - source.read <= 2 * height
