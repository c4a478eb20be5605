"""The anchor_refs of a checkpoint, beside it, here and in object storage (ANCHOR0.2)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

from recorder.checkpoints.home import CheckpointName, Home, HubPrefix, files
from veen import durable
from veen.objects.port import ObjectConflict, ObjectStore

_NAME: Final = re.compile(r"([a-z0-9]+)-([0-9]{1,9})\.cbor")


class Ref(NamedTuple):
    kind: str
    number: int
    anchor_ref: bytes

    @property
    def name(self) -> str:
        return _name(self.kind, self.number)


class Refs:
    """Written once each; a checkpoint may have many, of one kind and of several."""

    def __init__(self, home: Home, hub_id: bytes, objects: ObjectStore | None) -> None:
        self._home = home
        self._prefix = HubPrefix(hub_id)
        self._objects = objects

    def add(self, checkpoint_id: bytes, kind: str, anchor_ref: bytes) -> Ref:
        """Keep it; the one who calls holds the home. Kept already, it is not kept again."""
        folder = self._home.anchors_of(checkpoint_id)
        known = {one.number: one for one in read_refs(folder) if one.kind == kind}
        same = [one for one in known.values() if one.anchor_ref == anchor_ref]
        number = same[0].number if same else max(known, default=0) + 1
        while not self._stored(checkpoint_id, kind, number, anchor_ref):
            number += 1
        durable.make_directory(folder)
        durable.sync_directory(folder.parent)
        durable.write_once(folder / _name(kind, number), anchor_ref)
        return Ref(kind, number, anchor_ref)

    def fetch(self, checkpoint_id: bytes) -> int:
        """Bring here what only object storage holds of one checkpoint; how many there were."""
        if self._objects is None:
            return 0
        prefix, folder = self._prefix.anchors(checkpoint_id), self._home.anchors_of(checkpoint_id)
        known, fetched = set(files(folder)), 0
        with self._home.held():
            for key in self._objects.keys(prefix):
                name = key.removeprefix(prefix)
                if name in known or not _NAME.fullmatch(name):
                    continue
                durable.make_directory(folder)
                durable.write_once(folder / name, self._objects.get(key))
                fetched += 1
        return fetched

    def of(self, checkpoint_id: bytes) -> list[Ref]:
        return read_refs(self._home.anchors_of(checkpoint_id))

    def after_last(self, names: Sequence[CheckpointName]) -> Sequence[CheckpointName]:
        """Of these, in order of time, those after the last that has an anchor here.

        They are looked at from the newest on, and none before the one that is looked for.
        """
        for at in range(len(names), 0, -1):
            if files(self._home.anchors_of(names[at - 1].checkpoint_id)):
                return names[at:]
        return names

    def anchored(self) -> set[bytes]:
        """The ids of all checkpoints that have an anchor here; each has a folder to be read."""
        found = files(self._home.anchors)
        return {bytes.fromhex(name) for name in found if files(self._home.anchors / name)}

    def _stored(self, checkpoint_id: bytes, kind: str, number: int, anchor_ref: bytes) -> bool:
        """Whether object storage has it under that number now; another's may be there."""
        if self._objects is None:
            return True
        try:
            self._objects.put(self._prefix.anchors(checkpoint_id) + _name(kind, number), anchor_ref)
        except ObjectConflict:
            return False
        return True


def read_refs(folder: Path) -> list[Ref]:
    """The anchor_refs in a folder, by kind and number."""
    found = [
        Ref(match[1], int(match[2]), (folder / match[0]).read_bytes())
        for match in map(_NAME.fullmatch, files(folder))
        if match is not None
    ]
    return sorted(found)


def _name(kind: str, number: int) -> str:
    return f"{kind}-{number}.cbor"
