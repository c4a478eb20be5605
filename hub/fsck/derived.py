"""Derived state, learnt again beside the audit and held against what the hub keeps."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from pathlib import Path

from hub.fsck.nodes import NodeCheck
from hub.storage import pruned
from hub.storage.compare import disagreements
from hub.storage.datadir import DataDir
from hub.storage.index import ChunkRow, Index
from hub.storage.logged import Logged
from hub.storage.relearn import Relearner
from veen.audit import leaves
from veen.audit.findings import ChunkFindings, Kind
from veen.audit.stock import Stock
from veen.control import StreamRecord
from veen.layout import ChunkName
from veen.limits import Limits


class DerivedCheck:
    """Is shown the chunks of each label in order, the control label first."""

    def __init__(
        self,
        datadir: DataDir,
        stock: Stock,
        hub_id: bytes,
        limits: Limits,
        streams: Collection[StreamRecord],
        fresh: Path,
    ) -> None:
        self._datadir = datadir
        self._stock = stock
        self._streams = streams
        self._fresh = fresh
        self._index = Index(fresh, writable=True)
        self._index.create(hub_id)
        self._relearner = Relearner(self._index, hub_id, limits, streams)
        self._label = b""
        self._label_no = 0
        self._nodes: NodeCheck | None = None
        self._stale: list[str] = []

    def take(self, found: ChunkFindings, entries: Sequence[Logged]) -> None:
        """What was settled of one chunk, and its sound entries."""
        if found.task.label != self._label:
            self._finish_label()
            self._label = found.task.label
            self._nodes = NodeCheck(self._datadir.nodes(self._label))
        if found.task.kind is Kind.PRUNED and isinstance(found.task.segment, ChunkName):
            entries = self._pruned(found, found.task.segment)
        if not self._label_no and found.first_ts is not None:
            self._label_no = self._relearner.begin(self._label, found.first_ts)
        for record, seq, hub_ts in found.told:
            self._relearner.learn(record, seq, hub_ts)
        first = found.start.seen + 1
        self._relearner.take(self._label_no, first, list(entries))
        if self._nodes is not None and found.start.peaks is not None and not found.faults:
            self._nodes.follow(found.start.peaks, entries)
        if self._label_no and (found.task.kind is not Kind.OPEN or found.rolled is not None):
            row = ChunkRow(self._label_no, first, found.seen, found.size, found.last_ts)
            self._relearner.seal(row)

    def finish(self, faulty: set[bytes]) -> Iterator[str]:
        """Tell what is stale; labels with faults are left out."""
        self._finish_label()
        # The rates themselves are judged by the audit: here they fill the buckets of the index.
        for _ in self._relearner.fold_buckets():
            pass
        self._relearner.close()
        self._index.close()
        configured = {one.stream_id() for one in self._streams}
        found = disagreements(self._fresh, self._datadir.index, faulty, configured)
        for what in (*self._stale, *found):
            yield f"derived: {what}: run `veen hub rebuild`"

    def _finish_label(self) -> None:
        if self._nodes is None:
            return
        if self._label_no:
            uptos = sorted(self._stock.of(self._label).checkpoints)
            self._relearner.add_checkpoints(self._label_no, uptos)
        if not self._nodes.agrees:
            self._stale.append(f"{self._nodes.name} is missing or differs from the log")
        self._nodes.close()
        self._nodes = None
        self._label_no = 0

    def _pruned(self, found: ChunkFindings, name: ChunkName) -> list[Logged]:
        if found.first_ts is None:
            return []
        return pruned.unpack(self._datadir.file(leaves.leaves(name)).read_bytes(), name)
