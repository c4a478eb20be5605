"""What a table of events holds: files by chunk, a manifest a label, and one over all of them.

A file counts once the manifest names it. Whatever else lies in the store was left by a run that
was cut off, and nobody reads it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, TypeVar

from veen.digest import h
from veen.errors import Malformed, Untrusted, VeenError
from veen.objects.opened import Store
from veen.objects.port import Head, HeadMoved, HeadUnknown
from veen.schema import Bytes32, Version
from veen.wire import WireMap

_TRIES: Final = 10
_NAME: Final = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")
_TAKEN: Final = frozenset({"hubs", "folds"})


class OtherReader(VeenError):
    """The table was made with another identity."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EventFile(WireMap):
    """Parquet of one chunk and one day."""

    key: str
    day: str
    rows: int
    size: int
    sha256: Bytes32


@dataclass(frozen=True, slots=True, kw_only=True)
class EventChunk(WireMap):
    start_seq: int
    end_seq: int
    rows: int
    opened: int
    files: tuple[EventFile, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelEvents(WireMap):
    ver: Version = 1
    label: Bytes32
    chunks: tuple[EventChunk, ...]

    def rule(self) -> None:
        ends = [seq for one in self.chunks for seq in (one.start_seq, one.end_seq)]
        starts = [one.start_seq for one in self.chunks]
        if ends != sorted(ends) or len(set(starts)) != len(starts):
            raise Malformed("the chunks of a label are out of order or doubled")

    def plus(self, chunks: Sequence[EventChunk]) -> LabelEvents:
        """With these chunks too; one that is there stays as it is."""
        found = {one.start_seq: one for one in (*reversed(chunks), *self.chunks)}
        return replace(self, chunks=tuple(found[start] for start in sorted(found)))


@dataclass(frozen=True, slots=True, kw_only=True)
class TableLabel(WireMap):
    label: Bytes32
    sha256: Bytes32


@dataclass(frozen=True, slots=True, kw_only=True)
class TableManifest(WireMap):
    """``reader`` is the id_sign of the identity whose keys opened the events."""

    ver: Version = 1
    hub_id: Bytes32
    reader: Bytes32
    labels: tuple[TableLabel, ...]
    previous: Bytes32 | None = None


W = TypeVar("W", bound=WireMap)


@dataclass(frozen=True, slots=True)
class EventTable:
    store: Store
    name: str
    hub_id: bytes

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name) or self.name in _TAKEN:
            raise VeenError(
                f"table {self.name!r}: lower-case letters, digits, - and _ are due, "
                f"and not {', '.join(sorted(_TAKEN))}"
            )

    @property
    def prefix(self) -> str:
        return f"{self.name}/{self.hub_id.hex()}"

    def manifest(self) -> TableManifest | None:
        return self._manifest(self._head())

    def labels(self, manifest: TableManifest) -> Iterator[LabelEvents]:
        return (self._document(ref.sha256, LabelEvents) for ref in manifest.labels)

    def files(self) -> Iterator[EventFile]:
        """All that is committed; readers take these and no others."""
        manifest = self.manifest()
        for label in self.labels(manifest) if manifest else ():
            for chunk in label.chunks:
                yield from chunk.files

    def known(self, reader: bytes) -> set[tuple[bytes, int]]:
        """Label and start_seq of every chunk that is committed."""
        manifest = self.manifest()
        if manifest is None:
            return set()
        if manifest.reader != reader:
            raise OtherReader(
                f"table {self.name} was made with identity {manifest.reader.hex()}: "
                "take that, or another --table"
            )
        return {(one.label, each.start_seq) for one in self.labels(manifest) for each in one.chunks}

    def commit(self, reader: bytes, found: Mapping[bytes, Sequence[EventChunk]]) -> None:
        """Add chunks to the table, all of them or none."""
        for _ in range(_TRIES):
            head = self._head()
            old = self._manifest(head)
            new = self._with(old, head, reader, found)
            if old is not None and new.labels == old.labels:
                return
            raw = new.encode()
            self._put(raw)
            try:
                self.store.heads.swap(head, h(raw))
            except HeadMoved:
                continue
            except HeadUnknown:
                if self._head().value != h(raw):
                    raise
            return
        raise HeadMoved(f"others write to table {self.name} all the time: try again")

    def _with(
        self,
        old: TableManifest | None,
        head: Head,
        reader: bytes,
        found: Mapping[bytes, Sequence[EventChunk]],
    ) -> TableManifest:
        if old is not None and old.reader != reader:
            raise OtherReader(f"table {self.name} was made with another identity meanwhile")
        refs = {ref.label: ref for ref in old.labels} if old else {}
        for label, chunks in found.items():
            ref = refs.get(label)
            before = (
                self._document(ref.sha256, LabelEvents) if ref
                else LabelEvents(label=label, chunks=())
            )  # fmt: skip
            raw = before.plus(chunks).encode()
            self._put(raw)
            refs[label] = TableLabel(label=label, sha256=h(raw))
        labels = tuple(refs[label] for label in sorted(refs))
        return TableManifest(hub_id=self.hub_id, reader=reader, labels=labels, previous=head.value)

    def _head(self) -> Head:
        return self.store.heads.read(self.prefix)

    def _manifest(self, head: Head) -> TableManifest | None:
        if head.value is None:
            return None
        found = self._document(head.value, TableManifest)
        if found.hub_id != self.hub_id:
            raise Untrusted(f"table {self.name} is of another hub")
        return found

    def _document(self, sha256: bytes, wanted: type[W]) -> W:
        return wanted.decode(self.store.objects.get(self._key(sha256), expect=sha256))

    def _put(self, raw: bytes) -> None:
        self.store.objects.put(self._key(h(raw)), raw)

    def _key(self, sha256: bytes) -> str:
        # Whoever reads the whole folder as a table passes over what begins with an underscore.
        return f"{self.prefix}/_manifest/{sha256.hex()}"
