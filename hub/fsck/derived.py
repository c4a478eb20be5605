"""The check of derived state: index and node files compared with those computed from the log."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from pathlib import Path

from hub.storage.datadir import DataDir
from hub.storage.index import ChunkRow, Index
from hub.storage.log_scan import Logged, unpack_pruned
from hub.storage.relearn import Relearner, disagreements
from veen import mmr
from veen.audit.context import ChunkFindings, FindingKind, Stock
from veen.limits import Limits
from veen.log.entry import StreamRecord
from veen.log.layout import ChunkName, leaf_file
from veen.log.nodes import NodeFile
from veen.mmr import Peaks


class NodeCheck:
    """Compares the node file of a label with the nodes computed from its entries."""

    def __init__(self, path: Path) -> None:
        self.name = f"derived/{path.name}"
        self._file = NodeFile.for_reading(path) if path.is_file() else None
        self.agrees = self._file is not None

    def follow(self, peaks: Peaks, entries: Sequence[Logged]) -> None:
        """Compare the nodes of consecutive entries that follow ``peaks``."""
        if self._file is None or not entries:
            return
        at, expected = mmr.position(0, peaks.size), []
        for entry in entries:
            peaks, completed = mmr.grow(peaks, entry.leaf_hash)
            expected += completed
        self.agrees = self.agrees and self._file.read(at, len(expected)) == b"".join(expected)

    def close(self) -> None:
        if self._file is not None:
            self._file.close()


def node_hint(path: Path, size: int) -> Peaks | None:
    """The peaks at a size by a node file, unverified: a signed root must confirm them."""
    if not path.is_file():
        return None
    with NodeFile.for_reading(path) as nodes:
        try:
            return mmr.peaks_at(nodes, size)
        except LookupError:
            return None


class DerivedCheck:
    """Learns an index from the audited chunks, label by label, and compares it with the hub's.

    The control label must come first.
    """

    def __init__(
        self,
        datadir: DataDir,
        inventory: Stock,
        hub_id: bytes,
        limits: Limits,
        streams: Collection[StreamRecord],
        fresh: Path,
    ) -> None:
        self._datadir = datadir
        self._inventory = inventory
        self._streams = streams
        self._fresh = fresh
        self._index = Index(fresh, writable=True)
        self._index.create(hub_id)
        self._relearner = Relearner(self._index, hub_id, limits, streams)
        self._label = b""
        self._label_no = 0
        self._nodes: NodeCheck | None = None
        self._stale: list[str] = []

    def take(self, findings: ChunkFindings, entries: Sequence[Logged]) -> None:
        """Take the final findings of a chunk and its valid entries."""
        if findings.task.label != self._label:
            self._finish_label()
            self._label = findings.task.label
            self._nodes = NodeCheck(self._datadir.nodes(self._label))
        if findings.task.kind is FindingKind.PRUNED and isinstance(
            findings.task.segment, ChunkName
        ):
            entries = self._pruned(findings, findings.task.segment)
        if not self._label_no and findings.first_ts is not None:
            self._label_no = self._relearner.begin(self._label, findings.first_ts)
        for record, seq, hub_ts in findings.control_records:
            self._relearner.learn(record, seq, hub_ts)
        first = findings.start.seen + 1
        self._relearner.take(self._label_no, first, list(entries))
        if self._nodes is not None and findings.start.peaks is not None and not findings.faults:
            self._nodes.follow(findings.start.peaks, entries)
        if self._label_no and (
            findings.task.kind is not FindingKind.OPEN or findings.rolled is not None
        ):
            row = ChunkRow(self._label_no, first, findings.seen, findings.size, findings.last_ts)
            self._relearner.seal(row)

    def finish(self, faulty: set[bytes]) -> Iterator[str]:
        """Report stale derived state; labels with faults are left out."""
        self._finish_label()
        # The audit checks the rates; here they only fill the buckets of the index.
        for _ in self._relearner.fold_buckets():
            pass
        self._relearner.close()
        self._index.close()
        configured = {stream.stream_id() for stream in self._streams}
        differences = disagreements(self._fresh, self._datadir.index, faulty, configured)
        for what in (*self._stale, *differences):
            yield f"derived: {what}: run `veen hub rebuild`"

    def _finish_label(self) -> None:
        if self._nodes is None:
            return
        if self._label_no:
            uptos = sorted(self._inventory.of(self._label).checkpoints)
            self._relearner.add_checkpoints(self._label_no, uptos)
        if not self._nodes.agrees:
            self._stale.append(f"{self._nodes.name} is missing or differs from the log")
        self._nodes.close()
        self._nodes = None
        self._label_no = 0

    def _pruned(self, findings: ChunkFindings, name: ChunkName) -> list[Logged]:
        if findings.first_ts is None:
            return []
        return unpack_pruned(self._datadir.file(leaf_file(name)).read_bytes(), name)
