"""Stretches read page by page, each shown to be what the checkpoint holds before it goes on."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from recorder.replay.plan import Plan
from recorder.replay.source import Source
from recorder.replay.stretch import Stretch, at, verify_proof
from veen.client.errors import HubRefused
from veen.client.head import is_missing
from veen.client.pair import Pair
from veen.errors import Untrusted, VeenError
from veen.invariants import Violation
from veen.range_proof import RangeProof
from veen.record_event import MAX_TIME_MS

_LAST_SECOND: Final = MAX_TIME_MS // 1000


class Portion(NamedTuple):
    """Pairs of one stream that follow each other; without a proof they are above the checkpoint."""

    stream: str
    pairs: tuple[Pair, ...]
    proof: RangeProof | None


class ProvedReader:
    """Reads the stretches of one plan."""

    def __init__(self, source: Source, plan: Plan) -> None:
        self._source = source
        self._plan = plan

    def portions(self, stretch: Stretch, from_seq: int, to_seq: int) -> Iterator[Portion]:
        """A part of a stretch, as the source pages it; nothing is given out unproven unmarked."""
        border = min(max(stretch.proven_to, from_seq - 1), to_seq)
        last_ts = 0
        for first, last in ((from_seq, border), (border + 1, to_seq)):
            for portion in self._run(stretch, first, last):
                last_ts = self._verify_times(portion, last_ts)
                yield portion

    def portion(self, stretch: Stretch, from_seq: int, to_seq: int) -> Portion:
        """The same places as one portion, which an earlier run has made of them."""
        pairs = tuple(pair for page in self._pages(stretch, from_seq, to_seq) for pair in page)
        found = self._proved(stretch, pairs)
        self._verify_times(found, 0)
        return found

    def _run(self, stretch: Stretch, from_seq: int, to_seq: int) -> Iterator[Portion]:
        for page in self._pages(stretch, from_seq, to_seq):
            yield self._proved(stretch, page)

    def _pages(self, stretch: Stretch, from_seq: int, to_seq: int) -> Iterator[tuple[Pair, ...]]:
        """Pages that are there in full, or an error that names the place."""
        if from_seq > to_seq:
            return
        due = from_seq
        try:
            for page in self._source.pages(stretch.stream, from_seq, to_seq):
                if page:
                    yield page
                    due = page[-1].receipt.stream_seq + 1
        except Violation as error:
            where = at(stretch.stream, error.stream_seq)
            raise Untrusted(f"{where}: {error.invariant}: {error.reason}") from error
        except VeenError as error:
            error.add_note(f"in the replay of {at(stretch.stream, due)} and what follows")
            raise
        if due <= to_seq:
            raise Untrusted(
                f"{at(stretch.stream, due)}: it is missing, {to_seq} was to be the last"
            )

    def _proved(self, stretch: Stretch, pairs: tuple[Pair, ...]) -> Portion:
        first, last = pairs[0].receipt.stream_seq, pairs[-1].receipt.stream_seq
        if first > stretch.proven_to:
            return Portion(stretch.stream, pairs, None)
        leaves = [pair.receipt.leaf_hash for pair in pairs]
        try:
            proof = self._verified(stretch, first, last, leaves)
        except Untrusted as error:
            seq = self._culprit(stretch, first, leaves)
            raise Untrusted(
                f"{at(stretch.stream, seq)}: not what the checkpoint up to {stretch.proven_to} "
                f"holds there: {error}"
            ) from error
        return Portion(stretch.stream, pairs, proof)

    def _verified(self, stretch: Stretch, first: int, last: int, leaves: list[bytes]) -> RangeProof:
        try:
            proof = self._source.range_proof(stretch.stream, first, last, stretch.proven_to)
        except HubRefused as error:
            if not is_missing(error):
                raise
            raise Untrusted(f"the hub has no proof up to {stretch.proven_to}: {error}") from error
        verify_proof(self._plan.checkpoint, stretch.stream, (first, last), proof, leaves)
        return proof

    def _culprit(self, stretch: Stretch, first: int, leaves: Sequence[bytes]) -> int:
        """The first place of which the hub cannot prove all up to it, by halves."""
        good, bad = 0, len(leaves)
        while bad - good > 1:
            middle = (good + bad) // 2
            try:
                self._verified(stretch, first, first + middle - 1, list(leaves[:middle]))
            except (Untrusted, HubRefused):
                bad = middle
            else:
                good = middle
        return first + bad - 1

    def _verify_times(self, portion: Portion, last_ts: int) -> int:
        """Hub time never goes back, and all of it lies within the window."""
        for receipt in (pair.receipt for pair in portion.pairs):
            if receipt.hub_ts < last_ts:
                raise Untrusted(
                    f"{at(portion.stream, receipt.stream_seq)}: of {receipt.hub_ts}, before "
                    f"{last_ts} of what precedes it"
                )
            if receipt.hub_ts > _LAST_SECOND:
                raise Untrusted(f"{at(portion.stream, receipt.stream_seq)}: after the year 9999")
            if not self._plan.wanted.holds(receipt.hub_ts):
                raise Untrusted(
                    f"{at(portion.stream, receipt.stream_seq)}: of {receipt.hub_ts}, outside the "
                    "window"
                )
            last_ts = receipt.hub_ts
        return last_ts
