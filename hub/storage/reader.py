"""Reading a hub's log by its index, while another process writes it."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain, groupby
from operator import attrgetter
from types import TracebackType
from typing import BinaryIO, Self

from hub.storage.datadir import DataDir, is_held
from hub.storage.index import EntryRow, Index, LabelRow
from veen import mmr
from veen.checkpoint import Checkpoint
from veen.errors import VeenError
from veen.limits import ENTRY_HEADER_BYTES, Limits
from veen.log import layout
from veen.log.entry import Entry, EntryHeader, read_entry
from veen.log.nodes import NodeFile
from veen.proofs import InclusionProof, MmrProof, RangeProof, consistency
from veen.receipt import Receipt

_CACHED_PROOFS = 4_096
_READ_AHEAD = 1 << 16


class Missing(VeenError):
    """A label or stream_seq that does not exist."""


class Pruned(Missing):
    """An entry whose chunk was removed by retention."""


@dataclass(frozen=True, slots=True)
class StoredEntry:
    seq: int
    entry: Entry


class LogReader:
    """A thread-safe reader: each thread has its own connection to the index."""

    def __init__(self, datadir: DataDir, limits: Limits) -> None:
        self._datadir = datadir
        self._limits = limits
        self._local = threading.local()
        self._proof = lru_cache(_CACHED_PROOFS)(self._build_proof)

    @property
    def index(self) -> Index:
        index: Index | None = getattr(self._local, "index", None)
        if index is None:
            index = Index(self._datadir.index, writable=False)
            self._local.index = index
        return index

    def close(self) -> None:
        """Close the connection of this thread."""
        index: Index | None = getattr(self._local, "index", None)
        if index is not None:
            index.close()
            del self._local.index

    def label(self, label: bytes) -> LabelRow:
        row = self.index.label(label)
        if row is None or row.head_seq == 0:
            raise Missing(f"no message was ever logged under label {label.hex()}")
        return row

    def labels(self) -> list[LabelRow]:
        return self.index.labels()

    def entries(self, label: bytes, from_seq: int, to_seq: int) -> Iterator[StoredEntry]:
        row = self.label(label)
        if from_seq > row.head_seq:
            return
        rows = self.index.entries(row.label_no, from_seq, min(to_seq, row.head_seq))
        for _, chunk_rows in groupby(rows, key=attrgetter("chunk_start")):
            yield from self._in_chunk(label, chunk_rows)

    def entry(self, label: bytes, seq: int) -> Entry:
        for stored in self.entries(label, seq, seq):
            return stored.entry
        raise Missing(f"label {label.hex()} has no stream_seq {seq}")

    def receipt(self, label: bytes, seq: int) -> Receipt:
        return self.entry(label, seq).receipt()

    def proof(self, label: bytes, seq: int) -> MmrProof:
        self._verify_in_label(label, seq)
        return self._proof(label, seq)

    def inclusion(self, label: bytes, seq: int, size: int) -> InclusionProof:
        """The inclusion proof of an entry at a size."""
        self._verify_in_label(label, size)
        if not 1 <= seq <= size:
            raise Missing(f"leaf {seq} is not among the first {size}")
        with self._nodes(label) as nodes:
            return InclusionProof.build(nodes, seq, size)

    def range_proof(self, label: bytes, from_seq: int, to_seq: int, size: int) -> RangeProof:
        self._verify_in_label(label, size)
        if not 1 <= from_seq <= to_seq + 1 <= size + 1:
            raise Missing(f"{from_seq} to {to_seq} is not a range of the first {size}")
        with self._nodes(label) as nodes:
            return RangeProof.build(nodes, from_seq, to_seq, size)

    def consistency(self, label: bytes, old_size: int, new_size: int) -> RangeProof:
        """The consistency proof between two sizes."""
        self._verify_in_label(label, new_size)
        if old_size > new_size:
            raise Missing(f"size {old_size} is above {new_size}")
        with self._nodes(label) as nodes:
            return consistency(nodes, old_size, new_size)

    def root(self, label: bytes, size: int) -> bytes:
        self._verify_in_label(label, size)
        with self._nodes(label) as nodes:
            return mmr.peaks_at(nodes, size).root()

    def checkpoint(self, label: bytes, upto_seq: int) -> Checkpoint:
        path = self._datadir.file(layout.checkpoint(label, upto_seq))
        try:
            return Checkpoint.decode(path.read_bytes())
        except FileNotFoundError:
            raise Missing(f"label {label.hex()} has no checkpoint at {upto_seq}") from None

    def latest_checkpoint(self, label: bytes) -> Checkpoint:
        last = self.index.last_checkpoint(self.label(label).label_no)
        if last is None:
            raise Missing(f"label {label.hex()} has no checkpoint yet")
        return self.checkpoint(label, last)

    def checkpoints(self, label: bytes, from_seq: int, limit: int) -> list[Checkpoint]:
        row = self.label(label)
        if from_seq > row.head_seq:
            return []
        upto_seqs = self.index.checkpoints(row.label_no, from_seq, limit)
        return [self.checkpoint(label, upto_seq) for upto_seq in upto_seqs]

    def find_leaf(self, leaf_hash: bytes) -> list[tuple[bytes, int]]:
        """Every (label, stream_seq) of a message with this leaf hash."""
        places = self.index.places_of(leaf_hash)
        return [place for place in places if self.receipt(*place).leaf_hash == leaf_hash]

    def first_at(self, label: bytes, hub_ts: int) -> int:
        """The first stream_seq whose hub_ts is not before ``hub_ts``, or head + 1."""
        row = self.label(label)
        low, high = 1, row.head_seq + 1
        while low < high:
            middle = (low + high) // 2
            if self.index.hub_ts(row.label_no, middle) < hub_ts:
                low = middle + 1
            else:
                high = middle
        return low

    def _in_chunk(self, label: bytes, rows: Iterator[EntryRow]) -> Iterator[StoredEntry]:
        """The entries of rows of the same chunk, whose file is opened once."""
        first = next(rows)
        with self._open(label, first) as file:
            for row in chain((first,), rows):
                yield StoredEntry(row.seq, self._read_at(file, row.at))

    def _open(self, label: bytes, row: EntryRow) -> BinaryIO:
        """Open the chunk of an index row, which may be renamed until it is open."""
        sealed = self.index.chunk_of(row.label_no, row.seq)
        open_name = layout.open_chunk(layout.OpenChunkName(label, row.chunk_start))
        names = [open_name]
        if sealed is not None:
            name = layout.ChunkName(label, sealed.start_seq, sealed.end_seq)
            names.insert(0, layout.chunk(name))
        for name_ in names:
            try:
                return self._datadir.file(name_).open("rb", _READ_AHEAD)
            except FileNotFoundError:
                continue
        if sealed is None and self.index.chunk_of(row.label_no, row.seq) is not None:
            return self._open(label, row)
        raise Pruned(f"the chunk of stream_seq {row.seq} is not in this directory any more")

    def _read_at(self, file: BinaryIO, at: int) -> Entry:
        file.seek(at)
        head = file.read(ENTRY_HEADER_BYTES)
        header = EntryHeader.read(head, 0, self._limits)
        body = file.read(header.msg_len + header.receipt_len)
        return read_entry(head + body, 0, self._limits)[1]

    def _verify_in_label(self, label: bytes, seq: int) -> None:
        if not 1 <= seq <= self.label(label).head_seq:
            raise Missing(f"label {label.hex()} has no stream_seq {seq}")

    def _build_proof(self, label: bytes, seq: int) -> MmrProof:
        with self._nodes(label) as nodes:
            return MmrProof.build(nodes, seq)

    def _nodes(self, label: bytes) -> NodeFile:
        return NodeFile.for_reading(self._datadir.nodes(label))


class LogWriter:
    """The writer of a directory as seen by a reader: its progress, and whether it runs."""

    def __init__(self, datadir: DataDir) -> None:
        self._datadir = datadir
        self._index: Index | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        where: TracebackType | None,
    ) -> None:
        if self._index is not None:
            self._index.close()
            self._index = None

    def acknowledged(self, label: bytes) -> int:
        """The last indexed stream_seq, up to which receipts may exist; 0 without an index."""
        try:
            if self._index is None:
                self._index = Index(self._datadir.index, writable=False)
            row = self._index.label(label)
        except sqlite3.DatabaseError:
            return 0
        return row.head_seq if row else 0

    def is_running(self) -> bool:
        return is_held(self._datadir)
