"""The recorder checkpoints that are kept: written once, here and in object storage (SDR0 3.2.4)."""

from __future__ import annotations

from pathlib import Path

from recorder.checkpoints.home import CheckpointName, Home, HubPrefix, files, parse_name
from veen import durable
from veen.errors import Malformed, Untrusted
from veen.objects.port import ObjectStore
from veen.recorder_checkpoint import RecorderCheckpoint


class Shelf:
    """``objects`` is None where there is no object storage: then this directory is all."""

    def __init__(self, home: Home, hub_id: bytes, objects: ObjectStore | None) -> None:
        self.home = home
        self._prefix = HubPrefix(hub_id)
        self._objects = objects

    def put(self, checkpoint: RecorderCheckpoint) -> None:
        """Keep it here, then in object storage; one that is kept already changes nothing.

        When the storage fails, it is still here, and ``settle`` brings it there.
        """
        name = CheckpointName.of(checkpoint)
        with self.home.held():
            if not (self.home.checkpoints / name.file).exists():
                folder = self.home.checkpoints if self._objects is None else self.home.unstored
                durable.write_once(folder / name.file, checkpoint.encode())
        self.settle()

    def settle(self) -> int:
        """Bring to object storage what is not there yet; how many there were."""
        if self._objects is None or not files(self.home.unstored):
            return 0
        with self.home.held():
            waiting = files(self.home.unstored)
            for file in waiting:
                path = self.home.unstored / file
                self._objects.put(self._prefix.checkpoints + file, path.read_bytes())
                durable.rename(path, self.home.checkpoints / file)
                durable.sync_directory(self.home.unstored)
        return len(waiting)

    def fetch(self) -> int:
        """Bring here what only object storage holds; how many there were."""
        if self._objects is None:
            return 0
        prefix, known, fetched = self._prefix.checkpoints, set(self.names()), 0
        with self.home.held():
            for key in self._objects.keys(prefix):
                name = parse_name(key.removeprefix(prefix))
                if name is None or name in known:
                    continue
                raw = self._objects.get(key, expect=name.checkpoint_id)
                durable.write_once(self.home.checkpoints / name.file, raw)
                fetched += 1
        return fetched

    def names(self) -> list[CheckpointName]:
        """All that are kept here, by time."""
        kept = {*files(self.home.checkpoints), *files(self.home.unstored)}
        return sorted(name for name in map(parse_name, kept) if name is not None)

    def get(self, name: CheckpointName) -> RecorderCheckpoint:
        for folder in (self.home.checkpoints, self.home.unstored):
            if (folder / name.file).exists():
                return read(folder / name.file, name)
        raise Untrusted(f"{self.home.root} has no recorder checkpoint {name.checkpoint_id.hex()}")

    def latest(self) -> RecorderCheckpoint | None:
        names = self.names()
        return self.get(names[-1]) if names else None


def read(path: Path, name: CheckpointName | None = None) -> RecorderCheckpoint:
    """The document of a file, which must be the one that its name says."""
    try:
        found = RecorderCheckpoint.decode(path.read_bytes())
    except Malformed as error:
        raise Malformed(f"{path} is no whole recorder checkpoint: {error}") from error
    if name is not None and CheckpointName.of(found) != name:
        raise Untrusted(f"{path} is not the recorder checkpoint that it was kept as")
    return found
