"""Reading the labels of a log again, to rebuild derived state (spec 12)."""

from __future__ import annotations

from collections.abc import Mapping

from hub.storage import identity
from hub.storage.checkpoint_index import read_index
from hub.storage.contradictions import ArtefactCheck, Contradicted
from hub.storage.datadir import DataDir
from hub.storage.index import ChunkRow
from hub.storage.label_log import (
    Damaged,
    LocatedEntry,
    finish_rename,
    read_summary,
    whole_entries,
)
from hub.storage.log_scan import Logged, unpack_pruned
from hub.storage.relearn import Relearner
from veen import mmr
from veen.audit.context import LabelStock
from veen.digest import h
from veen.errors import Malformed, Untrusted
from veen.hub_identity import HubIdentity
from veen.limits import Limits
from veen.log import layout
from veen.log.chunk import CheckpointRef, Tombstone
from veen.log.entry import ControlRecord, control_label
from veen.log.layout import ChunkName, OpenChunkName, leaf_file, tombstone_file
from veen.log.nodes import NodeFile
from veen.system import durable


class Replay:
    """Feeds labels to a Relearner and writes their nodes; any fault raises Damaged."""

    def __init__(
        self, datadir: DataDir, hub: HubIdentity, limits: Limits, relearner: Relearner
    ) -> None:
        self._datadir = datadir
        self._hub = hub
        self._limits = limits
        self._relearner = relearner
        self._bindings = identity.read_bindings(datadir)
        self.contradicted: list[Contradicted] = []
        """Checkpoints and peak snapshots that differ from the log."""
        self.damaged_indexes: list[bytes] = []
        """The labels whose checkpoint index is malformed, or differs from the log."""

    def run(self, files: LabelStock, nodes: NodeFile) -> int:
        """Replay a label; the number of its entries."""
        label_no, peaks = 0, mmr.EMPTY
        check = ArtefactCheck(self._datadir, files)
        for segment in files.segments():
            if segment.start_seq != peaks.size + 1:
                name = files.missing(peaks.size + 1, segment.start_seq - 1)[0]
                raise Damaged(f"{name} is missing: run `veen hub verify`")
            entries, size = self._entries(segment, files)
            if not entries:
                continue
            if not label_no:
                label_no = self._relearner.begin(files.label, entries[0].hub_ts)
            peaks = _grow(peaks, entries, nodes, check, segment.start_seq)
            self._relearner.take(label_no, segment.start_seq, entries)
            if isinstance(segment, ChunkName):
                self._verify_end(segment, peaks)
                row = ChunkRow(
                    label_no, segment.start_seq, peaks.size, size, entries[-1].hub_ts
                )  # fmt: skip
                self._relearner.seal(row)
        _verify_not_rolled_back(files, peaks.size)
        if label_no:
            wrong = {contradicted.upto_seq for contradicted in check.contradicted}
            published = files.checkpoints & self._published(files.label, check.refs, wrong) - wrong
            self._relearner.add_checkpoints(label_no, sorted(published))
        self.contradicted += check.contradicted
        return peaks.size

    def _published(
        self, label: bytes, refs: Mapping[int, CheckpointRef], wrong: set[int]
    ) -> set[int]:
        """The checkpoints in the checkpoint index and the binding manifest.

        The next start completes the others.
        """
        try:
            listed = read_index(self._datadir, label)
        except Malformed:
            listed = None
        if listed is None or any(
            refs.get(upto, ref) != ref for upto, ref in listed.items() if upto not in wrong
        ):
            self.damaged_indexes.append(label)
            return set()
        bound = {binding.upto_seq for binding in self._bindings if binding.label == label}
        return listed.keys() & bound

    def _entries(
        self, segment: ChunkName | OpenChunkName, files: LabelStock
    ) -> tuple[list[Logged], int]:
        if isinstance(segment, ChunkName) and segment not in files.chunks:
            return self._pruned(segment)
        if isinstance(segment, OpenChunkName):
            name = layout.open_chunk(segment)
        else:
            name = layout.chunk(segment)
        raw = self._datadir.file(name).read_bytes()
        logged, end = [], 0
        for located in whole_entries(raw, segment.label, segment.start_seq, self._limits):
            logged.append(self._take(name, located))
            end = located.at + located.header.whole_size
        if isinstance(segment, ChunkName) and end != len(raw):
            raise Damaged(f"{name} is damaged at byte {end}: run `veen hub verify`")
        return logged, end

    def _take(self, name: str, located: LocatedEntry) -> Logged:
        try:
            framed = located.opened()
            if framed.header.label == control_label(self._hub.hub_id):
                record = ControlRecord.of(framed.msg)
                seq, hub_ts = framed.receipt.stream_seq, framed.receipt.hub_ts
                self._relearner.learn(record, seq, hub_ts)
        except Malformed as error:
            raise Damaged(f"{name} is damaged at byte {located.at}: {error}") from error
        return Logged.of(framed, located.at)

    def _pruned(self, name: ChunkName) -> tuple[list[Logged], int]:
        raw = self._datadir.file(tombstone_file(name)).read_bytes()
        try:
            tombstone = Tombstone.decode(raw)
            tombstone.verify(self._hub)
            records = self._datadir.file(leaf_file(name)).read_bytes()
            entries = unpack_pruned(records, name)
        except (Malformed, Untrusted, FileNotFoundError) as error:
            raise Damaged(f"{tombstone_file(name)}: {error}: run `veen hub verify`") from error
        if h(records) != tombstone.leaves_sha256:
            raise Damaged(f"{leaf_file(name)} does not match its tombstone")
        return entries, tombstone.chunk_bytes

    def _verify_end(self, name: ChunkName, peaks: mmr.Peaks) -> None:
        summary = read_summary(self._datadir, name)
        if (peaks.size, peaks.root()) != (name.end_seq, summary.mmr_root_end):
            raise Damaged(f"{layout.summary(name)} does not match the log: run `veen hub verify`")


def finish_seals(datadir: DataDir, files: LabelStock, limits: Limits) -> None:
    """Finish what a crash interrupted: the rename of a sealed chunk, or a label's first entry."""
    for opened in files.opened:
        path = datadir.file(layout.open_chunk(opened))
        raw = path.read_bytes()
        entries = list(whole_entries(raw, opened.label, opened.start_seq, limits))
        name = ChunkName(opened.label, opened.start_seq, opened.start_seq + len(entries) - 1)
        if entries and name in files.summaries:
            finish_rename(datadir, name)
        elif not entries and opened.start_seq == 1:
            # No receipt was given for this label; its next message starts it again.
            tail = f"tail-{opened.label.hex()}-1.bin"
            durable.write(datadir.evidence / tail, raw)
            path.unlink()
            durable.sync_directory(path.parent)


def _grow(
    peaks: mmr.Peaks, entries: list[Logged], nodes: NodeFile, check: ArtefactCheck, chunk_start: int
) -> mmr.Peaks:
    first, completed = peaks.size + 1, []
    for entry in entries:
        peaks, new = mmr.grow(peaks, entry.leaf_hash)
        completed.extend(new)
        check.at(peaks, entry.root, chunk_start)
    nodes.write_from(first, b"".join(completed))
    return peaks


def _verify_not_rolled_back(files: LabelStock, head_seq: int) -> None:
    signed = max(files.checkpoints, default=0)
    if head_seq < signed:
        raise Damaged(
            f"the log of label {files.label.hex()} ends at {head_seq}, behind this hub's own "
            f"checkpoint at {signed}: restore the log; nothing was rebuilt"
        )
