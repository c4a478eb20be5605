"""Node files of labels, verified against known peaks and rebuilt from the log.

A node file is derived state: it may be missing, stale or have holes after a crash or a restored
backup. The writer compares one with peaks it knows to be right before it reads it, which costs a
read per peak, and rebuilds it from the chunks of its label if it differs. A checkpoint is signed
for good, so ``RootWitness`` compares its root with the receipt at the same stream_seq first.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator

from hub.storage.datadir import DataDir
from hub.storage.label_log import Damaged, LabelLog, read_peaks, whole_entries
from hub.storage.log_scan import unpack_pruned
from hub.storage.reader import LogReader, Pruned
from veen import mmr
from veen.audit.context import LabelStock, take_inventory
from veen.checkpoint import Checkpoint
from veen.errors import Malformed
from veen.limits import Limits
from veen.log import layout
from veen.log.layout import ChunkName, OpenChunkName, leaf_file
from veen.log.nodes import NODE_BYTES, NodeFile
from veen.mmr import Peaks
from veen.system import durable

_log = logging.getLogger(__name__)


def agrees(nodes: NodeFile, peaks: Peaks) -> bool:
    """Whether a node file has these peaks."""
    try:
        return mmr.peaks_at(nodes, peaks.size) == peaks
    except (LookupError, FileNotFoundError):
        return False


def ensure_node_files(label_log: LabelLog, limits: Limits) -> None:
    """Open the node file of a label, and rebuild it if it has not the label's peaks."""
    if not label_log.nodes.is_open and not agrees(label_log.nodes, label_log.peaks):
        rebuild_node_files(label_log, limits)


def rebuild_node_files(label_log: LabelLog, limits: Limits) -> None:
    """Rebuild the node file of a label up to the peaks of ``label_log``."""
    label_log.nodes.close()
    rebuild_node_file(label_log.datadir, label_log.label, label_log.peaks, limits)


def rebuild_node_file(datadir: DataDir, label: bytes, expected: Peaks, limits: Limits) -> None:
    """Rebuild the node file of a label from its log, which must lead to ``expected``."""
    path = datadir.nodes(label)
    _log.warning("%s is missing or stale: making it again from the log", path.name)
    fresh = path.with_name(f".{path.name}.new")
    fresh.unlink(missing_ok=True)
    with NodeFile.for_writing(fresh) as nodes:
        peaks = _write(nodes, _leaf_hashes(datadir, label, expected.size, limits))
        nodes.sync()
    if peaks != expected:
        fresh.unlink()
        raise Damaged(
            f"the chunks of label {label.hex()} lead to another root at {expected.size} than its "
            "receipts and peaks say: run `veen hub verify`"
        )
    durable.rename(fresh, path)


def is_long_enough(datadir: DataDir, label: bytes, head_seq: int) -> bool:
    """Whether the node file of a label is as long as all of its nodes."""
    try:
        size = datadir.nodes(label).stat().st_size
    except FileNotFoundError:
        return False
    return size >= mmr.position(0, head_seq) * NODE_BYTES


def root_of_pruned(datadir: DataDir, name: ChunkName, upto_seq: int) -> bytes:
    """The root at a stream_seq of a pruned chunk, from its leaves.

    The leaves must lead from the peaks before the chunk to those at its end.
    """
    peaks, root = read_peaks(datadir, name.label, name.start_seq - 1), b""
    for leaf in _pruned_leaves(datadir, name):
        peaks = peaks.append(leaf)
        if peaks.size == upto_seq:
            root = peaks.root()
    if peaks != read_peaks(datadir, name.label, name.end_seq):
        raise Damaged(f"{leaf_file(name)} does not match its peaks: run `veen hub verify`")
    return root


def _write(nodes: NodeFile, leaf_hashes: Iterator[list[bytes]]) -> Peaks:
    peaks = mmr.EMPTY
    for batch in leaf_hashes:
        first, completed = peaks.size + 1, []
        for leaf in batch:
            peaks, new = mmr.grow(peaks, leaf)
            completed += new
        nodes.write_from(first, b"".join(completed))
    return peaks


def _leaf_hashes(
    datadir: DataDir, label: bytes, size: int, limits: Limits
) -> Iterator[list[bytes]]:
    """The first ``size`` leaves of a label, a chunk at a time."""
    files, done = take_inventory(datadir.log_names()).of(label), 0
    for segment in files.segments():
        if segment.start_seq != done + 1 or done == size:
            continue
        batch = _segment_leaves(datadir, files, segment, limits)[: size - done]
        done += len(batch)
        yield batch


def _segment_leaves(
    datadir: DataDir, files: LabelStock, segment: ChunkName | OpenChunkName, limits: Limits
) -> list[bytes]:
    if isinstance(segment, OpenChunkName):
        name = layout.open_chunk(segment)
    elif segment in files.chunks:
        name = layout.chunk(segment)
    else:
        return _pruned_leaves(datadir, segment)
    raw = datadir.file(name).read_bytes()
    located = whole_entries(raw, segment.label, segment.start_seq, limits)
    return [entry.opened().receipt.leaf_hash for entry in located]


def _pruned_leaves(datadir: DataDir, name: ChunkName) -> list[bytes]:
    try:
        records = datadir.file(leaf_file(name)).read_bytes()
        return [logged.leaf_hash for logged in unpack_pruned(records, name)]
    except (FileNotFoundError, Malformed) as error:
        raise Damaged(f"{leaf_file(name)}: {error}: run `veen hub verify`") from error


class RootWitness:
    """Checks roots against the hub's own receipts; owned by the writer."""

    def __init__(self, datadir: DataDir, limits: Limits) -> None:
        self._datadir = datadir
        self._limits = limits
        self._reader = LogReader(datadir, limits)

    def close(self) -> None:
        self._reader.close()

    def peaks(self, label_log: LabelLog, upto_seq: int) -> Peaks:
        """The peaks at ``upto_seq``, verified to have the root of the receipt there."""
        root = self._root(label_log.label, upto_seq)
        ensure_node_files(label_log, self._limits)
        peaks = _peaks_at(label_log, upto_seq)
        if peaks is None or peaks.root() != root:
            rebuild_node_files(label_log, self._limits)
            peaks = _peaks_at(label_log, upto_seq)
        if peaks is None or peaks.root() != root:
            raise Damaged(
                f"the log of label {label_log.label.hex()} leads to another root at {upto_seq} "
                f"than its receipt there, {root.hex()}: nothing was signed; run `veen hub verify`"
            )
        return peaks

    def verify_checkpoint(self, label_log: LabelLog, checkpoint: Checkpoint) -> None:
        """Raise Damaged for a stored checkpoint whose root differs from the receipt's."""
        root = self._root(label_log.label, checkpoint.upto_seq)
        if checkpoint.mmr_root != root:
            raise Damaged(
                f"{layout.checkpoint(label_log.label, checkpoint.upto_seq)} has root "
                f"{checkpoint.mmr_root.hex()}, but the receipt there has {root.hex()}: stop the "
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
            return root_of_pruned(self._datadir, name, upto_seq)


def _peaks_at(label_log: LabelLog, upto_seq: int) -> Peaks | None:
    try:
        return mmr.peaks_at(label_log.nodes, upto_seq)
    except LookupError:
        return None
