"""Checkpoints of a data directory: publication of label checkpoints, and recorder checkpoints.

A checkpoint is published when its file, its line in the checkpoint index and in the binding
manifest, and its row in the hub's index exist; what a crash left out is completed. A recorder
checkpoint is composed from the published checkpoints of all streams (SDR0 3.2.4) and stored as one
immutable file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from hub.registry import Registry, is_recorded
from hub.storage import identity
from hub.storage.checkpoint_index import add_line, merge_late, settle_index
from hub.storage.datadir import DataDir
from hub.storage.identity import HubKeys
from hub.storage.index import Index, IndexExtent, LabelRow
from hub.storage.label_log import Damaged, read_peaks
from veen.checkpoint import Checkpoint
from veen.errors import Malformed, Untrusted
from veen.label import derive_label, routing_key, stream_id
from veen.log import layout
from veen.log.chunk import CheckpointRef
from veen.log.layout import CheckpointFileName, RecorderName
from veen.recorder_checkpoint import EMPTY_ROOT, RecorderCheckpoint, StreamEnd, log_root
from veen.system import durable


@dataclass(frozen=True, slots=True)
class Publisher:
    """Publishes checkpoints. The row in the index of the hub is written last and marks them."""

    datadir: DataDir
    keys: HubKeys
    index: Index

    def publish(self, signed: Checkpoint) -> None:
        row = self._row(signed.label_curr)
        extent = self._write(row, signed)
        identity.bind(self.datadir, self.keys, signed)
        self._record(row, signed.upto_seq, extent)

    def unpublished(self, names: Iterable[str]) -> Iterator[CheckpointFileName]:
        """The checkpoint files of the log without a row in the index, in no order."""
        published = {layout.checkpoint(*checkpoint) for checkpoint in self.index.all_checkpoints()}
        for name in names:
            path = f"log/{name}"
            unpublished = None if path in published else layout.parse_checkpoint(path)
            if unpublished is not None:
                yield unpublished

    def complete(self, names: Iterable[CheckpointFileName]) -> None:
        """Finish the publication of checkpoints whose files exist."""
        bound = identity.settle_bindings(self.datadir)
        for name in sorted(names):
            row, signed = self._row(name.label), self._read(name)
            extent = self._write(row, signed)
            if name not in bound:
                identity.bind(self.datadir, self.keys, signed)
            self._record(row, name.upto_seq, extent)

    def merge_late(self) -> None:
        """Move late lines to their places in the checkpoint indexes."""
        for label_no, label in self.index.labels_with_late_lines():
            merge_late(self.datadir, label)
            with self.index.transaction():
                self.index.put_index_extent(label_no, settle_index(self.datadir, label))

    def _write(self, row: LabelRow, signed: Checkpoint) -> IndexExtent:
        """Write a checkpoint once, and its line in the label's checkpoint index."""
        label, upto_seq = signed.label_curr, signed.upto_seq
        path = self.datadir.file(layout.checkpoint(label, upto_seq))
        durable.write_once(path, signed.encode())
        ref = CheckpointRef(
            mmr_root=signed.mmr_root,
            start_seq=self._start_seq(row, upto_seq),
            end_seq=upto_seq,
            peaks_ref=layout.peaks(label, upto_seq),
        )
        extent = self.index.index_extent(row.label_no)
        return add_line(self.datadir, label, upto_seq, ref, extent)

    def _read(self, name: CheckpointFileName) -> Checkpoint:
        """A checkpoint not published yet, verified to be of this hub and of this log."""
        file = layout.checkpoint(*name)
        try:
            checkpoint = Checkpoint.decode(self.datadir.file(file).read_bytes())
        except Malformed as error:
            raise Damaged(f"{file}: {error}: run `veen hub verify`") from error
        expected = (*name, read_peaks(self.datadir, *name).root())
        is_own = any(checkpoint.is_signed_by(key.hub_pk) for key in self.keys.identity.hub_keys)
        if (
            checkpoint.label_curr,
            checkpoint.upto_seq,
            checkpoint.mmr_root,
        ) != expected or not is_own:
            raise Damaged(f"{file} is not a checkpoint of this log: run `veen hub verify`")
        return checkpoint

    def _row(self, label: bytes) -> LabelRow:
        row = self.index.label(label)
        if row is None:
            raise Damaged(f"label {label.hex()} is not in the index: run `veen hub rebuild`")
        return row

    def _start_seq(self, row: LabelRow, upto_seq: int) -> int:
        chunk = self.index.chunk_of(row.label_no, upto_seq)
        return chunk.start_seq if chunk else row.chunk_start

    def _record(self, row: LabelRow, upto_seq: int, extent: IndexExtent) -> None:
        with self.index.transaction():
            self.index.add_checkpoint(row.label_no, upto_seq)
            self.index.put_index_extent(row.label_no, extent)


@dataclass(frozen=True, slots=True)
class RecorderFiles:
    """The stored recorder checkpoints, for the writer and for concurrent readers.

    Readers go by the rows of the index, which follow the files; a start makes them agree.
    """

    datadir: DataDir
    index: Callable[[], Index]
    """The index of the calling thread."""

    def sweep(self) -> None:
        """Remove temporary files of interrupted writes, and make the rows those of the files.

        The files are durable on return.
        """
        durable.make_directory(self.datadir.recorder)
        for path in self.datadir.recorder.iterdir():
            if path.name.startswith(".") and path.name.endswith(".new"):
                path.unlink()
        durable.sync_directory(self.datadir.recorder)
        durable.sync_directory(self.datadir.root)

        parsed = map(layout.parse_recorder_checkpoint, self.datadir.recorder_names())
        stored = {name for name in parsed if name is not None}
        listed = set(self.index().recorder_checkpoints())
        if stored != listed:
            with self.index().transaction():
                self.index().add_recorder_checkpoints(sorted(stored - listed))
                self.index().remove_recorder_checkpoints(sorted(listed - stored))

    def latest(self) -> RecorderCheckpoint | None:
        last = self.index().latest_recorder_checkpoint()
        return None if last is None else self._read(last)

    def after(self, created_at: int, limit: int) -> Iterator[RecorderCheckpoint]:
        """The documents created after ``created_at``, in order."""
        return map(self._read, self.index().recorder_checkpoints(created_at, limit))

    def add(self, document: RecorderCheckpoint) -> None:
        """Store a document durably and atomically."""
        name = RecorderName.of(document.created_at, document.checkpoint_id)
        path = self.datadir.file(layout.recorder_checkpoint(name))
        durable.write_once(path, document.encode())

    def publish(self, document: RecorderCheckpoint) -> None:
        """Give a stored document to readers."""
        with self.index().transaction():
            self.index().add_recorder_checkpoints(
                [RecorderName.of(document.created_at, document.checkpoint_id)]
            )

    def _read(self, name: RecorderName) -> RecorderCheckpoint:
        file = layout.recorder_checkpoint(name)
        try:
            return RecorderCheckpoint.decode(self.datadir.file(file).read_bytes())
        except Malformed as error:
            raise Damaged(f"{file}: {error}: run `veen hub verify`") from error


class _Stream(NamedTuple):
    """A stream and its last published checkpoint; None while it has none."""

    stream_id: bytes
    name: str
    checkpoint: Checkpoint | None

    def end(self) -> StreamEnd:
        checkpoint = self.checkpoint
        return StreamEnd(
            stream_id=self.stream_id,
            last_seq=checkpoint.upto_seq if checkpoint else 0,
            mmr_root=checkpoint.mmr_root if checkpoint else EMPTY_ROOT,
        )


class RecorderComposer:
    """Creates recorder checkpoints. The single writer owns it, so each follows the last."""

    def __init__(self, datadir: DataDir, keys: HubKeys, index: Index, registry: Registry) -> None:
        self._datadir = datadir
        self._keys = keys
        self._index = index
        self._registry = registry
        self._files = RecorderFiles(datadir, lambda: index)
        self._is_published = True
        self._held: dict[bytes, Checkpoint] = {}
        self._files.sweep()
        self._last = self._files.latest()
        if self._last is not None:
            self._verify_last(self._last)
            self._held = _by_label(self._last)

    def compose(self, profile_id: bytes, now: int, *, force: bool) -> RecorderCheckpoint:
        """The last document while no stream has moved, or a new one, stored on return.

        No two have the same time. ``force`` makes a new one as soon as hub time has moved.
        """
        if self._last is not None and not self._is_published:
            self._publish(self._last)
        last, streams = self._last, sorted(self._streams())
        ends = tuple(stream.end() for stream in streams)
        if (
            last is not None
            and (last.profile_id, last.ends) == (profile_id, ends)
            and (not force or now <= last.created_at)
        ):
            return last
        document = RecorderCheckpoint(
            hub_id=self._keys.hub_id,
            hub_public=self._keys.current.public,
            profile_id=profile_id,
            created_at=now if last is None else max(now, last.created_at + 1),
            log_root=log_root(ends),
            ends=ends,
            names=tuple(stream.name for stream in streams),
            checkpoints=tuple(stream.checkpoint for stream in streams if stream.checkpoint),
        ).signed(self._keys.current)
        if last is not None:
            document.verify_follows(last)
        self._files.add(document)
        self._last, self._held, self._is_published = document, _by_label(document), False
        self._publish(document)
        return document

    def _publish(self, document: RecorderCheckpoint) -> None:
        """Give a stored document to readers; on a full disk the next request tries again."""
        self._files.publish(document)
        self._is_published = True

    def _streams(self) -> Iterator[_Stream]:
        """The registered streams and those of the last document, which never loses any."""
        names = {stream.name for stream in self._registry.streams() if is_recorded(stream)}
        names.update(self._last.names if self._last else ())
        for name in names:
            yield _Stream(stream_id(name), name, self._published(name))

    def _published(self, name: str) -> Checkpoint | None:
        row = self._index.label(self._label(name))
        upto = None if row is None else self._index.last_checkpoint(row.label_no)
        if row is None or upto is None:
            return None
        held = self._held.get(row.label)
        if held is not None and held.upto_seq == upto:
            return held
        path = self._datadir.file(layout.checkpoint(row.label, upto))
        return Checkpoint.decode(path.read_bytes())

    def _label(self, name: str) -> bytes:
        return derive_label(routing_key(self._keys.hub_id), stream_id(name), 0)

    def _verify_last(self, last: RecorderCheckpoint) -> None:
        """Raise Damaged unless this hub signed the last document and the log reaches its ends."""
        try:
            last.verify_signature(self._keys.identity)
        except Untrusted as error:
            raise Damaged(
                f"the recorder checkpoint of {last.created_at} is not this hub's: {error}: "
                "run `veen hub verify`"
            ) from error
        for name, end in zip(last.names, last.ends, strict=True):
            if end.last_seq and not self._holds(name, end):
                raise Damaged(
                    f"the log of {name} does not hold what the recorder checkpoint of "
                    f"{last.created_at} says it held up to {end.last_seq}. Restore the log from "
                    "the archive or a backup; nothing was started."
                )

    def _holds(self, name: str, end: StreamEnd) -> bool:
        row = self._index.label(self._label(name))
        if row is None or not self._index.has_checkpoint(row.label_no, end.last_seq):
            return False
        path = self._datadir.file(layout.checkpoint(row.label, end.last_seq))
        return Checkpoint.decode(path.read_bytes()).mmr_root == end.mmr_root


def _by_label(document: RecorderCheckpoint) -> dict[bytes, Checkpoint]:
    return {checkpoint.label_curr: checkpoint for checkpoint in document.checkpoints}
