"""What a checkpoint may say: the root that this hub's own receipt has at the same place.

Peaks come from a node file, which is derived state. A checkpoint is signed for good, so its root is
first compared with the receipt at ``upto_seq``, which the clients hold.
"""

from __future__ import annotations

from hub.storage import node_files
from hub.storage.datadir import DataDir
from hub.storage.label_log import Damaged, LabelLog
from hub.storage.reader import LogReader, Pruned
from veen import layout, mmr
from veen.checkpoint import Checkpoint
from veen.limits import Limits
from veen.mmr import Peaks


class RootWitness:
    """Owned by the one writer; it reads the log beside it."""

    def __init__(self, datadir: DataDir, limits: Limits) -> None:
        self._datadir = datadir
        self._limits = limits
        self._reader = LogReader(datadir, limits)

    def close(self) -> None:
        self._reader.close()

    def peaks(self, label_log: LabelLog, upto_seq: int) -> Peaks:
        """The peaks at a place of a label, with the root of the receipt there."""
        due = self._root(label_log.label, upto_seq)
        node_files.ensure(label_log, self._limits)
        found = _peaks_at(label_log, upto_seq)
        if found is None or found.root() != due:
            node_files.remake(label_log, self._limits)
            found = _peaks_at(label_log, upto_seq)
        if found is None or found.root() != due:
            raise Damaged(
                f"the log of label {label_log.label.hex()} leads to another root at {upto_seq} "
                f"than its receipt there, {due.hex()}: nothing was signed; run `veen hub verify`"
            )
        return found

    def refuse_other(self, label_log: LabelLog, checkpoint: Checkpoint) -> None:
        """Refuse a checkpoint on disk that does not say what the receipt at its place says."""
        due = self._root(label_log.label, checkpoint.upto_seq)
        if checkpoint.mmr_root != due:
            raise Damaged(
                f"{layout.checkpoint(label_log.label, checkpoint.upto_seq)} has root "
                f"{checkpoint.mmr_root.hex()}, but the receipt there has {due.hex()}: stop the "
                "hub and run `veen hub rebuild`, which sets such a checkpoint aside"
            )

    def _root(self, label: bytes, upto_seq: int) -> bytes:
        try:
            return self._reader.receipt(label, upto_seq).mmr_root
        except Pruned:
            row = self._reader.label(label)
            chunk = self._reader.index.chunk_of(row.label_no, upto_seq)
            if chunk is None:
                raise
            name = layout.ChunkName(label, chunk.start_seq, chunk.end_seq)
            return node_files.root_of_pruned(self._datadir, name, upto_seq)


def _peaks_at(label_log: LabelLog, upto_seq: int) -> Peaks | None:
    try:
        return mmr.peaks_at(label_log.nodes, upto_seq)
    except LookupError:
        return None
