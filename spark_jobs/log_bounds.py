"""Which entries a query can be about: what decides whether a chunk has to be opened."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from typing import Final

from recorder.archive.manifest import ArchiveManifest, LabelRef, Segment

UNBOUNDED: Final = 1 << 64


@dataclass(frozen=True, slots=True)
class Span:
    """From ``first`` to ``last``, both within."""

    first: int = 0
    last: int = UNBOUNDED

    def within(self, first: int = 0, last: int = UNBOUNDED) -> Span:
        return Span(max(self.first, first), min(self.last, last))

    def meets(self, first: int, last: int) -> bool:
        return max(self.first, first) <= min(self.last, last)


@dataclass(frozen=True, slots=True)
class LogBounds:
    """``labels`` is None when any label will do."""

    labels: frozenset[bytes] | None = None
    stream_seq: Span = Span()
    hub_ts: Span = Span()

    def with_labels(self, wanted: Collection[bytes]) -> LogBounds:
        found = frozenset(wanted)
        return replace(self, labels=found if self.labels is None else self.labels & found)

    def refs(self, manifest: ArchiveManifest) -> Iterator[LabelRef]:
        """The labels to look into; the manifests of others are not even read."""
        for ref in manifest.labels:
            if self.labels is None or ref.label in self.labels:
                yield ref

    def needs(self, segment: Segment) -> bool:
        in_seq = self.stream_seq.meets(segment.start_seq, segment.end_seq)
        return in_seq and self.hub_ts.meets(segment.first_ts, segment.last_ts)

    def is_past(self, stream_seq: int, hub_ts: int) -> bool:
        """Whether an entry and all after it are out of bounds."""
        return stream_seq > self.stream_seq.last or hub_ts > self.hub_ts.last
