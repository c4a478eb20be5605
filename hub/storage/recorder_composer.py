"""Putting a recorder checkpoint together from the published checkpoints of all streams."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from hub.registry import Registry, is_recorded
from hub.storage.datadir import DataDir
from hub.storage.identity import HubKeys
from hub.storage.index import Index
from hub.storage.label_log import Damaged
from hub.storage.recorder_files import RecorderFiles
from veen import layout
from veen.checkpoint import Checkpoint
from veen.errors import Untrusted
from veen.label import label, routing_key
from veen.recorder_checkpoint import EMPTY_ROOT, RecorderCheckpoint, StreamEnd, log_root
from veen.stream import stream_id


class _Stream(NamedTuple):
    """A stream and its last published checkpoint; None while it has none."""

    stream_id: bytes
    name: str
    checkpoint: Checkpoint | None

    def end(self) -> StreamEnd:
        found = self.checkpoint
        return StreamEnd(
            stream_id=self.stream_id,
            last_seq=found.upto_seq if found else 0,
            mmr_root=found.mmr_root if found else EMPTY_ROOT,
        )


class RecorderComposer:
    """Owned by the one writer, so every document follows the one before it."""

    def __init__(self, datadir: DataDir, keys: HubKeys, index: Index, registry: Registry) -> None:
        self._datadir = datadir
        self._keys = keys
        self._index = index
        self._registry = registry
        self._files = RecorderFiles(datadir)
        self._held: dict[bytes, Checkpoint] = {}
        self._files.sweep()
        self._last = self._files.latest()
        if self._last is not None:
            self._refuse_foreign(self._last)
            self._held = _by_label(self._last)

    def compose(self, profile_id: bytes, now: int, *, force: bool) -> RecorderCheckpoint:
        """A document that is on disk: the last one while it still holds, or a new one.

        No two have the same time. With ``force`` a new one comes as soon as hub time has moved.
        """
        last, streams = self._last, sorted(self._streams())
        ends = tuple(one.end() for one in streams)
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
            names=tuple(one.name for one in streams),
            checkpoints=tuple(one.checkpoint for one in streams if one.checkpoint),
        ).signed(self._keys.current)
        if last is not None:
            document.verify_follows(last)
        self._files.add(document)
        self._last, self._held = document, _by_label(document)
        return document

    def _streams(self) -> Iterator[_Stream]:
        """Those that are registered, and those of the last document: none ever leaves."""
        names = {one.name for one in self._registry.streams() if is_recorded(one)}
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
        return label(routing_key(self._keys.hub_id), stream_id(name), 0)

    def _refuse_foreign(self, last: RecorderCheckpoint) -> None:
        """The last document must be this hub's, and the log must reach what it vouches for."""
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
    return {one.label_curr: one for one in document.checkpoints}
