"""Page-by-page reads of stream ranges, each with an inclusion proof at the checkpoint."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from recorder.replay.plan import ReplayPlan, ReplaySource, StreamRange, at, verify_proof
from veen.client.log_head import Pair, is_missing
from veen.client.transport import HubRefused
from veen.errors import Untrusted, VeenError
from veen.events import MAX_TIME_MS
from veen.invariants import Violation
from veen.proofs import RangeProof

_LAST_SECOND: Final = MAX_TIME_MS // 1000


class VerifiedPage(NamedTuple):
    """Consecutive pairs of a stream; without a proof they are above the checkpoint."""

    stream: str
    pairs: tuple[Pair, ...]
    proof: RangeProof | None


class VerifiedReader:
    """Reads the ranges of a plan."""

    def __init__(self, source: ReplaySource, plan: ReplayPlan) -> None:
        self._source = source
        self._plan = plan

    def batches(
        self, stream_range: StreamRange, from_seq: int, to_seq: int
    ) -> Iterator[VerifiedPage]:
        """Yield a part of a range, page by page as the source gives it.

        Unproven pages have no proof.
        """
        border = min(max(stream_range.proven_to, from_seq - 1), to_seq)
        last_ts = 0
        for first, last in ((from_seq, border), (border + 1, to_seq)):
            for batch in self._run(stream_range, first, last):
                last_ts = self._verify_times(batch, last_ts)
                yield batch

    def batch(self, stream_range: StreamRange, from_seq: int, to_seq: int) -> VerifiedPage:
        """Return these positions as one page, as an earlier run wrote them."""
        pages = self._pages(stream_range, from_seq, to_seq)
        pairs = tuple(pair for page_pairs in pages for pair in page_pairs)
        page = self._proved(stream_range, pairs)
        self._verify_times(page, 0)
        return page

    def _run(self, stream_range: StreamRange, from_seq: int, to_seq: int) -> Iterator[VerifiedPage]:
        for page in self._pages(stream_range, from_seq, to_seq):
            yield self._proved(stream_range, page)

    def _pages(
        self, stream_range: StreamRange, from_seq: int, to_seq: int
    ) -> Iterator[tuple[Pair, ...]]:
        """Yield complete pages, or raise an error that names the position."""
        if from_seq > to_seq:
            return
        next_seq = from_seq
        try:
            for page in self._source.pages(stream_range.stream, from_seq, to_seq):
                if page:
                    yield page
                    next_seq = page[-1].receipt.stream_seq + 1
        except Violation as error:
            where = at(stream_range.stream, error.stream_seq)
            raise Untrusted(f"{where}: {error.invariant}: {error.reason}") from error
        except VeenError as error:
            error.add_note(f"in the replay of {at(stream_range.stream, next_seq)} and what follows")
            raise
        if next_seq <= to_seq:
            raise Untrusted(
                f"{at(stream_range.stream, next_seq)}: it is missing, expected entries up to "
                f"{to_seq}"
            )

    def _proved(self, stream_range: StreamRange, pairs: tuple[Pair, ...]) -> VerifiedPage:
        first, last = pairs[0].receipt.stream_seq, pairs[-1].receipt.stream_seq
        if first > stream_range.proven_to:
            return VerifiedPage(stream_range.stream, pairs, None)
        leaves = [pair.receipt.leaf_hash for pair in pairs]
        try:
            proof = self._verified(stream_range, first, last, leaves)
        except Untrusted as error:
            seq = self._first_unproven(stream_range, first, leaves)
            raise Untrusted(
                f"{at(stream_range.stream, seq)}: does not match the checkpoint up to "
                f"{stream_range.proven_to}: {error}"
            ) from error
        return VerifiedPage(stream_range.stream, pairs, proof)

    def _verified(
        self, stream_range: StreamRange, first: int, last: int, leaves: list[bytes]
    ) -> RangeProof:
        try:
            proof = self._source.range_proof(
                stream_range.stream, first, last, stream_range.proven_to
            )
        except HubRefused as error:
            if not is_missing(error):
                raise
            raise Untrusted(
                f"the hub has no proof up to {stream_range.proven_to}: {error}"
            ) from error
        verify_proof(self._plan.checkpoint, stream_range.stream, (first, last), proof, leaves)
        return proof

    def _first_unproven(
        self, stream_range: StreamRange, first: int, leaves: Sequence[bytes]
    ) -> int:
        """Find the first position that the hub cannot prove, by bisection."""
        good, bad = 0, len(leaves)
        while bad - good > 1:
            middle = (good + bad) // 2
            try:
                self._verified(stream_range, first, first + middle - 1, list(leaves[:middle]))
            except (Untrusted, HubRefused):
                bad = middle
            else:
                good = middle
        return first + bad - 1

    def _verify_times(self, batch: VerifiedPage, last_ts: int) -> int:
        """Hub time never goes back, and is within the window."""
        for receipt in (pair.receipt for pair in batch.pairs):
            if receipt.hub_ts < last_ts:
                raise Untrusted(
                    f"{at(batch.stream, receipt.stream_seq)}: expected hub time {last_ts} or "
                    f"later, got {receipt.hub_ts}"
                )
            if receipt.hub_ts > _LAST_SECOND:
                raise Untrusted(
                    f"{at(batch.stream, receipt.stream_seq)}: hub time after the year 9999"
                )
            if not self._plan.requested.holds(receipt.hub_ts):
                raise Untrusted(
                    f"{at(batch.stream, receipt.stream_seq)}: hub time {receipt.hub_ts} is outside "
                    "the window"
                )
            last_ts = receipt.hub_ts
        return last_ts
