"""The recorder checkpoints of a data directory: one signed document a file, never changed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from hub.storage.datadir import DataDir
from hub.storage.label_log import Damaged
from veen import durable, layout
from veen.errors import Malformed
from veen.layout import RecorderName
from veen.recorder_checkpoint import RecorderCheckpoint


@dataclass(frozen=True, slots=True)
class RecorderFiles:
    """For the one writer, and for whoever reads beside it."""

    datadir: DataDir

    def sweep(self) -> None:
        """Remove what is left of writes that never ended; all the rest is on disk on return."""
        durable.make_directory(self.datadir.recorder)
        for path in self.datadir.recorder.iterdir():
            if path.name.startswith(".") and path.name.endswith(".new"):
                path.unlink()
        durable.sync_directory(self.datadir.recorder)
        durable.sync_directory(self.datadir.root)

    def latest(self) -> RecorderCheckpoint | None:
        last = max(self._names(), default=None)
        return None if last is None else self._read(last)

    def after(self, created_at: int, limit: int) -> Iterator[RecorderCheckpoint]:
        """Those made later than ``created_at``, in order."""
        later = sorted(one for one in self._names() if one.created_at > created_at)
        return map(self._read, later[:limit])

    def add(self, document: RecorderCheckpoint) -> None:
        """Keep a document, which is on disk on return, whole; on a full disk nothing of it is."""
        name = RecorderName.of(document.created_at, document.checkpoint_id)
        path = self.datadir.file(layout.recorder_checkpoint(name))
        durable.write_once(path, document.encode())

    def _names(self) -> Iterator[RecorderName]:
        names = self.datadir.recorder_names()
        if names:
            # A name that the writer has not synced yet could still be lost, and must not get out.
            durable.sync_directory(self.datadir.recorder)
        found = map(layout.parse_recorder_checkpoint, names)
        return (one for one in found if one is not None)

    def _read(self, name: RecorderName) -> RecorderCheckpoint:
        file = layout.recorder_checkpoint(name)
        try:
            return RecorderCheckpoint.decode(self.datadir.file(file).read_bytes())
        except Malformed as error:
            raise Damaged(f"{file}: {error}: run `veen hub verify`") from error
