"""The log of a hub: all labels, written by a single process in durable groups.

``HubLog`` appends, seals and checkpoints. The log is written ahead of the index, and memory
changes last; opening a directory recovers from a stop at any point.
"""

from __future__ import annotations

import logging
import time
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Final, Protocol

from hub.registry import Registry
from hub.storage.checkpoints import Publisher, RecorderComposer
from hub.storage.datadir import DataDir
from hub.storage.identity import HubKeys
from hub.storage.index import ChunkRow, CommitCursors, EntryRow, Index, LabelRow, leaf_key
from hub.storage.label_log import (
    CommitBatch,
    Damaged,
    LabelChange,
    LabelLog,
    finish_rename,
    read_peaks,
    write_peaks,
)
from hub.storage.log_scan import index_control, learn_control, register_streams
from hub.storage.nodes import RootWitness, ensure_node_files, is_long_enough, rebuild_node_file
from hub.storage.recovery import (
    Resume,
    Unindexed,
    find_unknown_labels,
    open_label,
    resume_point,
    sweep,
)
from veen import mmr
from veen.captoken import CapToken, TokenBucket
from veen.checkpoint import Checkpoint
from veen.errors import VeenError
from veen.invariants import ClientCursor, Grant
from veen.label import DEFAULT_PROFILE, Profile, routing_key
from veen.limits import Limits
from veen.log import layout
from veen.log.chunk import ChunkTally
from veen.log.entry import ControlRecord, StreamRecord, control_label
from veen.log.layout import CheckpointFileName
from veen.log.nodes import NodeFile
from veen.system import durable

_OPEN_LABELS: Final = 64
_CACHED_GRANTS: Final = 65_536
_log = logging.getLogger(__name__)
NamedLabel = tuple[LabelLog, bytes] | None
"""A label and the stream it was found to belong to; None where nothing changes."""


class Observer(Protocol):
    """Receives measurements of the log."""

    def appended(self, seconds: float) -> None:
        """Note that a group was written and synced in so many seconds."""

    def checkpointed(self, entries: int) -> None:
        """Note a checkpoint that is so many entries after the last of its label."""


class NullLogObserver:
    """An observer that ignores everything."""

    def appended(self, seconds: float) -> None: ...

    def checkpointed(self, entries: int) -> None: ...


class IndexMissing(VeenError):
    """The derived index is missing or belongs to another log."""


class HubLog:
    """The writer's view of the log. The caller must hold the lock of the directory."""

    def __init__(
        self, datadir: DataDir, keys: HubKeys, limits: Limits, streams: Iterable[StreamRecord]
    ) -> None:
        self.datadir = datadir
        self.observer: Observer = NullLogObserver()
        self.keys = keys
        self.limits = limits
        self.registry = Registry(routing_key(keys.hub_id), limits.max_epoch_skew_sec)
        self.index = open_index(datadir, keys.hub_id)
        self.cursors = CommitCursors(self.index)
        self._publisher = Publisher(datadir, keys, self.index)
        self._witness = RootWitness(datadir, limits)
        self._labels: dict[bytes, LabelLog] = {}
        self._open: OrderedDict[bytes, LabelLog] = OrderedDict()
        self._grants: dict[bytes, tuple[CapToken, int]] = {}
        for _, _, record in self.index.streams():
            self.registry.add(StreamRecord.decode(record))
        configured = [stream for stream in streams if self.registry.add(stream)]
        self._recover()
        with self.index.transaction():
            for stream in configured:
                self._index_configured(stream)
        self.recorder = RecorderComposer(datadir, keys, self.index, self.registry)
        # Hub time never goes back behind the latest hub_ts of the log.
        latest = self.index.latest_label()
        self.last_ts = latest.head_ts if latest else 0

    def labels(self) -> Iterable[LabelLog]:
        return self._labels.values()

    def label(self, label: bytes) -> LabelLog | None:
        return self._labels.get(label)

    def ensure_label(self, label: bytes, now: int) -> LabelLog:
        """The label's log; a new label is indexed durably before its first entry."""
        known = self._labels.get(label)
        if known is not None:
            return known
        routed = self.registry.route(label, now)
        stream_id = routed.stream_id if routed else None
        epoch = routed.epoch if routed else 0
        with self.index.durable_transaction():
            label_no = self.index.add_label(label, stream_id, epoch, now)
        created = LabelLog(
            datadir=self.datadir,
            label=label,
            label_no=label_no,
            stream_id=stream_id,
            epoch=epoch,
            peaks=mmr.EMPTY,
            tally=ChunkTally.starting_at(1),
            last_ts=0,
            nodes=NodeFile.for_writing(self.datadir.nodes(label)),
        )
        self._labels[label] = created
        return created

    def grant(
        self, auth_ref: bytes, staged: Mapping[bytes, TokenBucket] = MappingProxyType({})
    ) -> Grant | None:
        """The capability of an auth_ref, with its bucket: a staged one, or that of the last commit.

        The bucket of a capability without a rate is empty.
        """
        if auth_ref not in self._grants:
            row = self.index.token(auth_ref)
            if row is None:
                return None
            if len(self._grants) >= _CACHED_GRANTS:
                self._grants.clear()
            self._grants[auth_ref] = (CapToken.decode(row.token), row.issued_at)
        token, issued_at = self._grants[auth_ref]
        rate = token.allow.rate
        if rate is None:
            return Grant(token, issued_at, TokenBucket(0, issued_at))
        known = staged.get(auth_ref) or self.cursors.bucket(auth_ref)
        return Grant(token, issued_at, known or TokenBucket.full(rate, issued_at))

    def flush(self, batch: CommitBatch) -> None:
        """Commit a batch: log first (write-ahead), then index, then memory."""
        begun = time.perf_counter()
        appended: list[LabelLog] = []
        try:
            for change in batch.changes.values():
                self._keep_open(change.label_log)
                change.label_log.append(b"".join(staged.frame for staged in change.staged))
                appended.append(change.label_log)
            self.observer.appended(time.perf_counter() - begun)
            self._index(batch)
        except durable.NoSpace:
            for label_log in appended:
                label_log.undo()
            raise
        for change in batch.changes.values():
            change.apply()
            self.last_ts = max(self.last_ts, change.last_ts)

    def seal(self, label_log: LabelLog, now: int) -> None:
        """Seal the open chunk: artefacts, index, rename. A start after a crash finishes it."""
        ensure_node_files(label_log, self.limits)
        label_log.nodes.sync()
        tally = label_log.tally
        row = ChunkRow(
            label_log.label_no, tally.start_seq, label_log.head_seq, tally.size, label_log.last_ts
        )
        self.checkpoint(label_log, label_log.head_seq, now)
        label_log.end_chunk()
        with self.index.durable_transaction():
            self.index.seal(row)
        label_log.finish_chunk()

    def checkpoint(self, label_log: LabelLog, upto_seq: int, now: int) -> Checkpoint:
        """The checkpoint at ``upto_seq``: from disk, or newly signed."""
        path = self.datadir.file(layout.checkpoint(label_log.label, upto_seq))
        if path.exists():
            if not self.index.has_checkpoint(label_log.label_no, upto_seq):
                self._publisher.complete([CheckpointFileName(label_log.label, upto_seq)])
            stored = Checkpoint.decode(path.read_bytes())
            self._witness.verify_checkpoint(label_log, stored)
            return stored
        peaks = self._witness.peaks(label_log, upto_seq)
        unsigned = Checkpoint(
            label_prev=self._label_before(label_log),
            label_curr=label_log.label,
            upto_seq=upto_seq,
            mmr_root=peaks.root(),
            epoch=label_log.epoch,
        )
        hub_ts = self.index.hub_ts(label_log.label_no, upto_seq)
        signed = self.keys.sign_checkpoint(unsigned, self._profile(label_log), hub_ts, now)
        write_peaks(self.datadir, label_log.label, peaks)
        last = self.index.last_checkpoint(label_log.label_no) or 0
        self._publisher.publish(signed)
        self._store_resume_point(label_log)
        self.observer.checkpointed(max(0, upto_seq - last))
        return signed

    def _store_resume_point(self, label_log: LabelLog) -> None:
        """Note the state of a label, so that a start need not read its open chunk from the start.

        Its nodes are synced before: a start does not write them again.
        """
        if label_log.tally.entries:
            ensure_node_files(label_log, self.limits)
            label_log.nodes.sync()
            with self.index.transaction():
                self.index.put_resume_point(label_log.label_no, resume_point(label_log))

    def close_stale_epochs(self, now: int) -> None:
        """Close labels whose epoch accepts no more messages, with a last seal and checkpoint."""
        for label_log in list(self._labels.values()):
            routed = self._route(label_log)
            if routed is None or label_log.epoch in routed.profile.epochs(
                now, self.limits.max_epoch_skew_sec
            ):
                continue
            if label_log.tally.entries:
                self.seal(label_log, now)
            label_log.drop_chunk()
            with self.index.durable_transaction():
                self.index.close_label(label_log.label_no)
            del self._labels[label_log.label]
            self._open.pop(label_log.label, None)
            label_log.nodes.close()

    def close(self) -> None:
        for label_log in self._labels.values():
            label_log.close()
            label_log.nodes.close()
        self._witness.close()
        self._publisher.merge_late()
        self.index.close()

    def _keep_open(self, label_log: LabelLog) -> None:
        """Keep the files of recently written labels open, and close those of the oldest."""
        if not label_log.nodes.is_open:
            ensure_node_files(label_log, self.limits)
        self._open[label_log.label] = label_log
        self._open.move_to_end(label_log.label)
        if len(self._open) > _OPEN_LABELS:
            _, idle = self._open.popitem(last=False)
            idle.close()
            idle.nodes.close()

    def _index_configured(self, stream: StreamRecord) -> None:
        """Index a configured stream, and link a label that was logged before it was named."""
        self.index.add_stream(stream.stream_id(), stream.name, stream.encode())
        _apply_names([self._index_name(stream)])

    def _index_name(self, stream: StreamRecord) -> NamedLabel:
        """Index the stream of a label logged before it; memory is updated after the commit."""
        label_log = self._labels.get(self.registry.labels_of(stream).at(0))
        if label_log is None or label_log.stream_id is not None:
            return None
        self.index.name_label(label_log.label_no, stream.stream_id())
        return label_log, stream.stream_id()

    def _route(self, label_log: LabelLog) -> StreamRecord | None:
        if label_log.stream_id is None:
            return None
        stream = self.registry.stream(label_log.stream_id)
        return stream if stream is not None and stream.profile.epoch_sec else None

    def _profile(self, label_log: LabelLog) -> Profile:
        stream = self._route(label_log)
        return stream.profile if stream else DEFAULT_PROFILE

    def _label_before(self, label_log: LabelLog) -> bytes:
        """label_prev: the label of the epoch before; without epochs, the label itself.

        It depends on the label alone, so the order of checkpoints does not matter.
        """
        stream = self._route(label_log)
        if stream is None or label_log.epoch == 0:
            return label_log.label
        return self.registry.labels_of(stream).at(label_log.epoch - 1)

    def _index(self, batch: CommitBatch) -> None:
        named: list[NamedLabel] = []
        try:
            with self.index.transaction():
                for change in batch.changes.values():
                    self._index_change(change)
                self.cursors.store(batch.clients, batch.buckets)
                for record, staged in batch.controls:
                    index_control(self.index, self.registry, record, staged.seq, staged.hub_ts)
                    named += [self._index_name(stream) for stream in record.streams()]
        except durable.NoSpace:
            self.cursors.forget()
            raise
        for record, _ in batch.controls:
            register_streams(self.registry, record)
        if named:
            _apply_names(named)

    def _index_change(self, change: LabelChange) -> None:
        label_log, staged = change.label_log, change.staged
        self._keep_open(label_log)
        label_log.nodes.write_from(staged[0].seq, b"".join(entry.nodes for entry in staged))
        self.index.add_entries([
            EntryRow(
                label_log.label_no, entry.seq, entry.chunk_start, entry.at, entry.hub_ts,
                self.cursors.row(label_log.label_no, entry.verified.client_id).client_no,
                entry.verified.client_seq, leaf_key(entry.verified.leaf_hash),
            )
            for entry in staged
        ])  # fmt: skip
        self.index.move_head(label_log.label_no, staged[-1].seq, staged[-1].hub_ts)

    def _recover(self) -> None:
        names = sweep(self.datadir)
        unpublished = sorted(self._publisher.unpublished(names))
        unknown = sorted(find_unknown_labels(names, unpublished, self.index))
        if unknown:
            raise IndexMissing(
                f"{unknown[0]} and {len(unknown) - 1} more are not in the index of "
                f"{self.datadir.root}: run `veen hub rebuild`"
            )
        self._open_labels(unpublished)
        if unpublished:
            self._publisher.complete(unpublished)
            _log.info("completed %d checkpoints left by the last stop", len(unpublished))
        for label_log in self._labels.values():
            if label_log.has_summary():
                since = self.keys.identity.current.valid_from
                self.seal(label_log, max(label_log.last_ts, since))
                label_log.nodes.close()

    def _open_labels(self, unpublished: Iterable[CheckpointFileName]) -> None:
        unindexed: list[Unindexed] = []
        signed_by_label: dict[bytes, set[int]] = {}
        for place in unpublished:
            signed_by_label.setdefault(place.label, set()).add(place.upto_seq)
        for row in self.index.labels():
            if row.closed:
                self._ensure_nodes_of_closed(row)
                continue
            last = self.index.chunk_of(row.label_no, row.chunk_start - 1)
            if last is not None:
                name = layout.ChunkName(row.label, last.start_seq, last.end_seq)
                finish_rename(self.datadir, name)
            signed = signed_by_label.get(row.label, set())
            signed.update(self.index.checkpoints_from(row.label_no, row.chunk_start - 1))
            at = self._resume_at(row)
            label_log, new = open_label(self.datadir, row, last, self.limits, signed, at)
            self._labels[row.label] = label_log
            unindexed.extend(new)
        self._learn(unindexed)

    def _resume_at(self, row: LabelRow) -> Resume | None:
        """Where a start can go on in the open chunk, as the index says."""
        point = self.index.resume_point(row.label_no)
        if point is None or not row.chunk_start <= point.seq <= row.head_seq:
            return None
        (entry,) = self.index.entries(row.label_no, point.seq, point.seq) or (None,)
        return None if entry is None else Resume(point, entry.at)

    def _ensure_nodes_of_closed(self, row: LabelRow) -> None:
        """Rebuild the node file of a closed label if it is too short; a start checks no more."""
        if row.head_seq and not is_long_enough(self.datadir, row.label, row.head_seq):
            peaks = read_peaks(self.datadir, row.label, row.head_seq)
            rebuild_node_file(self.datadir, row.label, peaks, self.limits)

    def _learn(self, unindexed: list[Unindexed]) -> None:
        """Index entries that were logged but not indexed, in the order of hub time."""
        if not unindexed:
            return
        clients: dict[tuple[int, bytes], ClientCursor] = {}
        with self.index.durable_transaction():
            for entry in sorted(unindexed, key=lambda entry: entry.framed.receipt.hub_ts):
                self._learn_entry(entry, clients)
            self.cursors.store(clients, {})
        _log.info("indexed %d entries that were logged before the last stop", len(unindexed))

    def _learn_entry(
        self, unindexed: Unindexed, clients: dict[tuple[int, bytes], ClientCursor]
    ) -> None:
        msg, receipt = unindexed.framed.msg, unindexed.framed.receipt
        label_no = unindexed.label_log.label_no
        client_no = self.cursors.row(label_no, msg.client_id).client_no
        row = EntryRow(
            label_no, receipt.stream_seq, unindexed.chunk_start, unindexed.at, receipt.hub_ts,
            client_no, msg.client_seq, leaf_key(receipt.leaf_hash),
        )  # fmt: skip
        self.index.add_entries([row])
        self.index.move_head(label_no, receipt.stream_seq, receipt.hub_ts)
        clients[label_no, msg.client_id] = ClientCursor(msg.client_seq, msg.prev_ack)
        if msg.label == control_label(self.keys.hub_id):
            record = ControlRecord.of(msg)
            learn_control(self.index, self.registry, record, receipt.stream_seq, receipt.hub_ts)
        elif msg.auth_ref is not None:
            self._debit(msg.auth_ref, receipt.hub_ts)

    def _debit(self, auth_ref: bytes, hub_ts: int) -> None:
        grant = self.grant(auth_ref)
        if grant is None or grant.token.allow.rate is None:
            return
        left = grant.bucket.refilled(grant.token.allow.rate, hub_ts).debited()
        if left is None:
            raise Damaged(f"the log holds more messages under {auth_ref.hex()} than it allows")
        self.cursors.store({}, {auth_ref: left})


def _apply_names(named: Iterable[NamedLabel]) -> None:
    for change in named:
        if change is not None:
            label_log, stream_id = change
            label_log.stream_id = stream_id


def open_index(datadir: DataDir, hub_id: bytes) -> Index:
    """The index of a directory; a new one is created only for an empty log."""
    exists = datadir.index.exists()
    if not exists and not datadir.is_empty():
        raise IndexMissing(
            f"{datadir.index} is missing but the log is not empty: run `veen hub rebuild`"
        )
    index = Index(datadir.index, writable=True)
    if not exists:
        index.create(hub_id)
        return index
    index.migrate(hub_id)
    if not index.is_of(hub_id):
        raise IndexMissing(f"{datadir.index} is not an index of this hub: run `veen hub rebuild`")
    return index


def delete_retired_seeds(log: HubLog, now: int) -> None:
    """Delete the seeds of keys that retired before ``now`` (spec 8.4).

    A key is kept until the epochs that ended in its time are closed, which it signs.
    """
    if not log.keys.holds_older:
        return
    needed = set()
    for label_log in log.labels():
        stream = log.registry.stream(label_log.stream_id) if label_log.stream_id else None
        if stream is not None and stream.profile.epoch_sec:
            for hub_ts in (0, label_log.last_ts):
                needed.add(log.keys.signer(label_log.epoch, stream.profile, hub_ts))
    log.keys.delete_retired(log.datadir, now, needed)
