"""Rerun of a query: everything it searched is read again and must give the same result.

An omitted, added or changed row is detected, whatever evidence the query requested (Query API 9.1).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import zip_longest
from typing import Final

from recorder.query import evidence
from recorder.query.descriptor import Descriptor
from recorder.query.digest import ResultDigest, Searched, SpokenUpTo, rows_hash
from recorder.query.execute import QueryOutcome, StreamSpan, end_of, run
from recorder.query.filter import Filter
from recorder.query.select import QueryEntry, Row
from veen.errors import Untrusted
from veen.events import is_import
from veen.mmr import Peaks
from veen.proofs import RangeProof
from veen.recorder_checkpoint import RecorderCheckpoint, StreamEnd
from veen.wire import canonical_json

_COMPARED: Final = (
    "query_id", "descriptor_hash", "hub_id", "profile_id", "checkpoint", "evidence_policy",
    "searched", "event_count", "row_count", "rows_hash", "rows_chain", "evidence_hash",
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Horizon:
    """What a digest covers, as the hub has signed it; ``ends`` has every stream of its scope."""

    spoken: SpokenUpTo
    hub_id: str
    profile_id: str
    ends: Mapping[str, StreamEnd]

    @classmethod
    def of(cls, checkpoint: RecorderCheckpoint, descriptor: Descriptor) -> Horizon:
        """The horizon of a verified checkpoint."""
        return cls(
            spoken=SpokenUpTo.of(checkpoint),
            hub_id=checkpoint.hub_id.hex(),
            profile_id=checkpoint.profile_id.hex(),
            ends={name: end_of(name, checkpoint) for name in descriptor.scope},
        )


class ResultDiffers(Untrusted):
    """A rerun with another result; ``field`` is the first field of the digest that differs."""

    def __init__(self, field: str, detail: str) -> None:
        super().__init__(f"the replay differs in {field}: {detail}")
        self.field = field


def verify_complete(
    descriptor: Descriptor,
    digest: ResultDigest,
    horizon: Horizon,
    entries: Iterable[QueryEntry],
    proofs: Mapping[str, RangeProof],
    half: frozenset[tuple[str, int]] = frozenset(),
) -> QueryOutcome:
    """Run the query again and compare with the digest; ResultDiffers if they differ.

    ``entries`` are all of ``to_read``, those of each stream by position, from signed receipts;
    ``proofs`` has the proof of each of these spans at the end of its stream. ``half`` are positions
    in import streams whose bundle was incomplete at the checkpoint: they do not count.
    """
    if horizon.spoken != digest.checkpoint:
        raise ResultDiffers(
            "checkpoint", f"expected {digest.checkpoint.checkpoint_id}, got another"
        )
    read = _VerifiedRead(to_read(descriptor, digest, horizon), proofs)
    searched = _bounded(descriptor, digest, read.through(entries))
    if any(map(is_import, descriptor.scope)):
        # Import streams are in the order of arrival, rows in the order of their origins.
        counted = (entry for entry in searched if (entry.stream, entry.seq) not in half)
        searched = iter(sorted(counted, key=lambda entry: entry.order_key))
    outcome = run(descriptor, searched, _root(digest))
    read.verify_ends(horizon)
    difference(digest, _rerun_digest(descriptor, digest, horizon, outcome))
    return outcome


def to_read(
    descriptor: Descriptor, digest: ResultDigest, horizon: Horizon
) -> dict[str, StreamSpan]:
    """What must be read to verify a digest: what it searched, and one position on either side to
    show the bounds of the time filter. A stream without messages is left out."""
    if tuple(searched.stream for searched in digest.searched) != descriptor.scope:
        raise ResultDiffers("searched", f"the scope is {', '.join(descriptor.scope)}")
    spans = {}
    for searched in digest.searched:
        last = _last_seq(searched, horizon)
        span = StreamSpan(max(1, searched.from_seq - 1), min(last, searched.to_seq + 1))
        if span.first <= span.last:
            spans[searched.stream] = span
    return spans


def difference(expected: ResultDigest, digest: ResultDigest) -> None:
    """Raise ResultDiffers for the first field in which two digests of a query differ."""
    left, right = expected.document(), digest.document()
    for field in _COMPARED:
        if left[field] != right[field]:
            raise ResultDiffers(field, f"{_shown(left[field])} became {_shown(right[field])}")


def first_differing_row(expected: Iterable[Row], rows: Iterable[Row]) -> int | None:
    """The number of the first row, from 0, in which two results differ."""
    for index, (left, right) in enumerate(zip_longest(expected, rows)):
        if left is None or right is None:
            return index
        if canonical_json.encode(left) != canonical_json.encode(right):
            return index
    return None


class _VerifiedRead:
    """Appends the leaves of every span, which must lead to the signed root of its stream."""

    def __init__(self, spans: Mapping[str, StreamSpan], proofs: Mapping[str, RangeProof]) -> None:
        self._proofs = {stream: _proof_of(stream, span, proofs) for stream, span in spans.items()}
        self._peaks: dict[str, Peaks] = {
            stream: proof.before() for stream, proof in self._proofs.items()
        }

    def through(self, entries: Iterable[QueryEntry]) -> Iterator[QueryEntry]:
        for entry in entries:
            peaks = self._peaks.get(entry.stream)
            if peaks is None or entry.seq != peaks.size + 1:
                raise Untrusted(f"{entry.stream} {entry.seq} is out of order")
            self._peaks[entry.stream] = peaks.append(entry.leaf_hash)
            yield entry

    def verify_ends(self, horizon: Horizon) -> None:
        for stream, proof in self._proofs.items():
            end = horizon.ends[stream]
            try:
                proof.verify_after(self._peaks[stream], size=end.last_seq, root=end.mmr_root)
            except Untrusted as error:
                raise Untrusted(f"{stream} does not match the checkpoint: {error}") from error


def _proof_of(stream: str, span: StreamSpan, proofs: Mapping[str, RangeProof]) -> RangeProof:
    proof = proofs.get(stream)
    if proof is None or (proof.from_seq, proof.to_seq) != span:
        raise Untrusted(f"{stream}: the proof of {span.first} to {span.last} is missing")
    return proof


def _bounded(
    descriptor: Descriptor, digest: ResultDigest, entries: Iterable[QueryEntry]
) -> Iterator[QueryEntry]:
    """Yield the searched entries; a neighbour of theirs must be outside the time filter."""
    spans = {searched.stream: searched for searched in digest.searched}
    for entry in entries:
        span = spans[entry.stream]
        if span.from_seq <= entry.seq <= span.to_seq:
            yield entry
        elif not _is_beyond(descriptor.filter, span, entry):
            raise ResultDiffers("searched", f"{entry.stream} {entry.seq} was left out")


def _is_beyond(filter_: Filter, span: Searched, entry: QueryEntry) -> bool:
    """Whether all further positions on that side are outside the time filter as well.

    Never in an import stream: it is in the order of arrival, and the filter uses the time at the
    origin.
    """
    if is_import(entry.stream):
        return False
    if entry.seq < span.from_seq:
        return entry.hub_ts < filter_.first_second
    return filter_.last_second is not None and entry.hub_ts > filter_.last_second


def _last_seq(searched: Searched, horizon: Horizon) -> int:
    end = horizon.ends[searched.stream]
    if searched.mmr_root != end.mmr_root.hex() or searched.to_seq > end.last_seq:
        raise ResultDiffers("searched", f"{searched.stream} does not end at the checkpoint")
    return end.last_seq


def _rerun_digest(
    descriptor: Descriptor, digest: ResultDigest, horizon: Horizon, outcome: QueryOutcome
) -> ResultDigest:
    """The digest of the rerun, under the result_id and time of the original (D48)."""
    rows = rows_hash(outcome.rows)
    lines = (
        evidence.EvidenceSummary(
            sampled.entry.receipt_id,
            horizon.ends[sampled.entry.stream].mmr_root.hex(),
            horizon.hub_id,
        )
        for sampled in outcome.sampled
    )
    return ResultDigest(
        query_id=descriptor.query_id,
        result_id=digest.result_id,
        descriptor_hash=descriptor.digest(),
        row_count=rows.row_count,
        event_count=outcome.event_count,
        evidence_policy=descriptor.evidence,
        rows_hash=rows.rows_hash,
        rows_chain=rows.chain,
        evidence_hash=evidence.evidence_hash(descriptor, digest.result_id, lines),
        executed_at=digest.executed_at,
        hub_id=horizon.hub_id,
        profile_id=horizon.profile_id,
        checkpoint=horizon.spoken,
        searched=tuple(
            replace(searched, unread=outcome.unread.get(searched.stream, 0))
            for searched in digest.searched
        ),
    )


def _root(digest: ResultDigest) -> bytes:
    return bytes.fromhex(digest.checkpoint.log_root)


def _shown(value: object) -> str:
    return f"{value!r:.120}"
