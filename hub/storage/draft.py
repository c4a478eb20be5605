"""A draft: entries decided upon but not yet on disk. It is flushed whole or forgotten."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from hub.admission.verified import Verified
from hub.storage.cursors import ClientKey
from hub.storage.label_log import LabelLog
from veen import mmr, receipt, sign
from veen.chunk import Tally
from veen.control import ControlRecord
from veen.entry import Entry
from veen.invariants import ClientCursor
from veen.limits import ENTRY_HEADER_BYTES, Limits
from veen.mmr import Peaks
from veen.rate import Bucket


class ChunkFull(Exception):
    """The next entry belongs to a new chunk: flush, seal the label's chunk, draft again."""


class Staged(NamedTuple):
    verified: Verified
    seq: int
    hub_ts: int
    chunk_start: int
    at: int
    receipt: bytes
    frame: bytes
    nodes: bytes


@dataclass(slots=True)
class Change:
    """What a draft does to one label."""

    label_log: LabelLog
    peaks: Peaks
    tally: Tally
    last_ts: int
    staged: list[Staged] = field(default_factory=list)

    def apply(self) -> None:
        self.label_log.peaks = self.peaks
        self.label_log.tally = self.tally
        self.label_log.last_ts = self.last_ts


class Draft:
    def __init__(self, key: sign.PrivateKey, limits: Limits) -> None:
        self._key = key
        self._limits = limits
        self._changes: dict[bytes, Change] = {}
        self.controls: list[tuple[ControlRecord, Staged]] = []
        self.clients: dict[ClientKey, ClientCursor] = {}
        self.buckets: dict[bytes, Bucket] = {}

    def changes(self) -> Iterable[Change]:
        return self._changes.values()

    def is_empty(self) -> bool:
        return not self._changes

    def head_seq(self, label_log: LabelLog) -> int:
        change = self._changes.get(label_log.label)
        return change.peaks.size if change else label_log.head_seq

    def seq_of(self, label: bytes, client_id: bytes, client_seq: int) -> int | None:
        """The stream_seq of a client's message in this draft."""
        change = self._changes.get(label)
        for one in change.staged if change else ():
            if (one.verified.client_id, one.verified.client_seq) == (client_id, client_seq):
                return one.seq
        return None

    def append(self, label_log: LabelLog, verified: Verified, hub_ts: int) -> Staged:
        """Give a message its place, its receipt and its frame."""
        change = self._change(label_log)
        peaks, completed = mmr.grow(change.peaks, verified.leaf_hash)
        signed = receipt.issue(
            self._key,
            label=label_log.label,
            stream_seq=peaks.size,
            leaf=verified.leaf_hash,
            root=peaks.root(),
            hub_ts=hub_ts,
        )
        entry = Entry(verified.raw, signed)
        size = ENTRY_HEADER_BYTES + len(verified.raw) + len(signed)
        if label_log.is_ended or change.tally.must_roll(size, self._limits):
            raise ChunkFull
        entry_hash = entry.entry_hash()
        frame = entry.frame(label_log.label, peaks.size, entry_hash)
        staged = Staged(
            verified, peaks.size, hub_ts, change.tally.start_seq, change.tally.size,
            signed, frame, b"".join(completed),
        )  # fmt: skip
        change.staged.append(staged)
        change.peaks, change.last_ts = peaks, hub_ts
        change.tally = change.tally.plus(size, entry_hash)
        self._changes[label_log.label] = change
        return staged

    def _change(self, label_log: LabelLog) -> Change:
        found = self._changes.get(label_log.label)
        if found is not None:
            return found
        return Change(label_log, label_log.peaks, label_log.tally, label_log.last_ts)
