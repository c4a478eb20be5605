"""Where the log stands: the label with the latest entry and its root."""

from __future__ import annotations

from dataclasses import dataclass

from hub.storage.index import LabelRow
from hub.storage.reader import LogReader


@dataclass(frozen=True, slots=True)
class Head:
    labels: int
    latest: LabelRow | None
    root: bytes | None

    @property
    def last_stream_seq(self) -> int:
        return self.latest.head_seq if self.latest else 0

    @property
    def last_hub_ts(self) -> int:
        return self.latest.head_ts if self.latest else 0

    @property
    def peaks_count(self) -> int:
        return self.last_stream_seq.bit_count()


def head_of(reader: LogReader) -> Head:
    rows = [row for row in reader.labels() if row.head_seq]
    latest = max(rows, key=lambda row: (row.head_ts, row.label_no), default=None)
    root = reader.root(latest.label, latest.head_seq) if latest else None
    return Head(len(rows), latest, root)
