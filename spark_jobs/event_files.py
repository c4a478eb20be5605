"""The files of an events table: Parquet by chunk and day, a manifest a label, and one for the hub.

A file belongs to the table once the manifest names it; other files in the store were left by an
interrupted run and are ignored. The rows are what the reader's keys open of the entries of a log,
and the same entries give the same bytes.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]

from spark_jobs.chunk_window import ArchivedChunk, PlacedEntry, windows
from spark_jobs.session import identity_in
from veen.digest import h
from veen.errors import Malformed, Unopenable, Untrusted, VeenError
from veen.hub_identity import HubIdentity
from veen.label import Profile
from veen.limits import Limits
from veen.log.layout import chunk as chunk_file
from veen.msg import Msg
from veen.objects.port import (
    HeadMoved,
    HeadUnknown,
    ObjectMissing,
    ObjectStore,
    Store,
    StoreHead,
    digest_of,
)
from veen.objects.store import StoreRef
from veen.payload import Opened, open_with_any
from veen.wire.objects import WireMap
from veen.wire.schema import Bytes32, Version

_MAX_TRIES: Final = 10
_NAME: Final = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")
_RESERVED_NAMES: Final = frozenset({"hubs", "folds"})
W = TypeVar("W", bound=WireMap)
DAY_SEC: Final = 86_400
# expires_at is chosen by the client, up to 2^64 - 1. No column is called stream or day, since the
# partition directories are.
ARROW: Final = pa.schema(
    [
        ("stream_name", pa.string()),
        ("stream_id", pa.binary()),
        ("label", pa.binary()),
        ("stream_seq", pa.int64()),
        ("hub_ts", pa.int64()),
        ("client_id", pa.binary()),
        ("msg_id", pa.binary()),
        ("opened", pa.bool_()),
        ("schema", pa.binary()),
        ("body", pa.binary()),
        ("parent_id", pa.binary()),
        ("att_root", pa.binary()),
        ("expires_at", pa.uint64()),
    ]
)
# Everything that could change the bytes is fixed; the version of pyarrow is part of them too.
_WRITER: Final[dict[str, Any]] = {
    "version": "2.6",
    "compression": "zstd",
    "compression_level": 3,
    "use_dictionary": False,
    "data_page_version": "1.0",
    "store_schema": False,
    "write_page_index": False,
}
_OPENED: Final = ARROW.get_field_index("opened")


class OtherReader(VeenError):
    """The table was made with another identity."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EventFile(WireMap):
    """The Parquet file of a chunk and day."""

    key: str
    day: str
    rows: int
    size: int
    sha256: Bytes32


@dataclass(frozen=True, slots=True, kw_only=True)
class EventChunk(WireMap):
    """The files of a chunk."""

    start_seq: int
    end_seq: int
    rows: int
    opened: int
    files: tuple[EventFile, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelEvents(WireMap):
    """The chunks of a label."""

    ver: Version = 1
    label: Bytes32
    chunks: tuple[EventChunk, ...]

    def rule(self) -> None:
        ends = [seq for chunk in self.chunks for seq in (chunk.start_seq, chunk.end_seq)]
        starts = [chunk.start_seq for chunk in self.chunks]
        if ends != sorted(ends) or len(set(starts)) != len(starts):
            raise Malformed("expected the chunks of a label sorted and unique")

    def plus(self, chunks: Sequence[EventChunk]) -> LabelEvents:
        """Add chunks; those already present stay as they are."""
        merged = {chunk.start_seq: chunk for chunk in (*reversed(chunks), *self.chunks)}
        return replace(self, chunks=tuple(merged[start] for start in sorted(merged)))


@dataclass(frozen=True, slots=True, kw_only=True)
class TableLabel(WireMap):
    label: Bytes32
    sha256: Bytes32


@dataclass(frozen=True, slots=True, kw_only=True)
class TableManifest(WireMap):
    """The manifest of a table.

    ``reader`` is the id_sign of the identity that decrypted the events.
    """

    ver: Version = 1
    hub_id: Bytes32
    reader: Bytes32
    labels: tuple[TableLabel, ...]
    previous: Bytes32 | None = None


@dataclass(frozen=True, slots=True)
class EventTable:
    """An events table in a store."""

    store: Store
    name: str
    hub_id: bytes

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name) or self.name in _RESERVED_NAMES:
            raise VeenError(
                f"table {self.name!r}: expected lower-case letters, digits, - and _, "
                f"and not {', '.join(sorted(_RESERVED_NAMES))}"
            )

    @property
    def prefix(self) -> str:
        return f"{self.name}/{self.hub_id.hex()}"

    def manifest(self) -> TableManifest | None:
        return self._manifest(self._head())

    def labels(self, manifest: TableManifest) -> Iterator[LabelEvents]:
        return (self._document(ref.sha256, LabelEvents) for ref in manifest.labels)

    def files(self) -> Iterator[EventFile]:
        """All committed files; readers use these and no others."""
        manifest = self.manifest()
        for label in self.labels(manifest) if manifest else ():
            for chunk in label.chunks:
                yield from chunk.files

    def known(self, reader: bytes) -> set[tuple[bytes, int]]:
        """The label and start_seq of every committed chunk."""
        manifest = self.manifest()
        if manifest is None:
            return set()
        if manifest.reader != reader:
            raise OtherReader(
                f"table {self.name} was written with identity {manifest.reader.hex()}; use that "
                "identity, or another --table"
            )
        return {
            (label.label, chunk.start_seq)
            for label in self.labels(manifest)
            for chunk in label.chunks
        }

    def commit(self, reader: bytes, added: Mapping[bytes, Sequence[EventChunk]]) -> None:
        """Add chunks to the table, atomically."""
        for _ in range(_MAX_TRIES):
            head = self._head()
            old = self._manifest(head)
            new = self._with(old, head, reader, added)
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
        raise HeadMoved(f"other jobs keep writing to table {self.name}; try again later")

    def _with(
        self,
        old: TableManifest | None,
        head: StoreHead,
        reader: bytes,
        added: Mapping[bytes, Sequence[EventChunk]],
    ) -> TableManifest:
        if old is not None and old.reader != reader:
            raise OtherReader(
                f"table {self.name} was written with another identity during this job"
            )
        refs = {ref.label: ref for ref in old.labels} if old else {}
        for label, chunks in added.items():
            ref = refs.get(label)
            known = (
                self._document(ref.sha256, LabelEvents) if ref
                else LabelEvents(label=label, chunks=())
            )  # fmt: skip
            raw = known.plus(chunks).encode()
            self._put(raw)
            refs[label] = TableLabel(label=label, sha256=h(raw))
        labels = tuple(refs[label] for label in sorted(refs))
        return TableManifest(hub_id=self.hub_id, reader=reader, labels=labels, previous=head.value)

    def _head(self) -> StoreHead:
        return self.store.heads.read(self.prefix)

    def _manifest(self, head: StoreHead) -> TableManifest | None:
        if head.value is None:
            return None
        document = self._document(head.value, TableManifest)
        if document.hub_id != self.hub_id:
            raise Untrusted(f"table {self.name} is of another hub")
        return document

    def _document(self, sha256: bytes, kind: type[W]) -> W:
        return kind.decode(self.store.objects.get(self._key(sha256), expect=sha256))

    def _put(self, raw: bytes) -> None:
        self.store.objects.put(self._key(h(raw)), raw)

    def _key(self, sha256: bytes) -> str:
        # Readers of the whole directory as a table skip names that begin with an underscore.
        return f"{self.prefix}/_manifest/{sha256.hex()}"


@dataclass(frozen=True, slots=True)
class LabelledStream:
    """The stream of a label; both are None when the control log does not name it."""

    name: str | None
    stream_id: bytes | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Readership:
    """The keys and rules with which events of a hub are decrypted and verified."""

    hub: HubIdentity
    limits: Limits
    profiles: Mapping[bytes, Profile]
    keys: Sequence[bytes] = field(default=(), repr=False)

    def rows(
        self, entries: Sequence[PlacedEntry], stream: LabelledStream, chunk: ArchivedChunk
    ) -> Iterator[tuple[Any, ...]]:
        """Yield a row for each entry; an entry that client or hub did not sign is refused."""
        for placed in entries:
            msg, receipt = placed.framed.msg, placed.framed.receipt
            try:
                self.hub.verify_receipt(receipt)
                _verify(msg, receipt.leaf_hash)
            except Untrusted as error:
                where = f"{chunk.file} at byte {placed.at}"
                raise Untrusted(f"{where}: {error}; run verify_log") from error
            opened = self._opened(msg)
            header = opened.header if opened else None
            yield (
                stream.name, stream.stream_id, receipt.label, receipt.stream_seq, receipt.hub_ts,
                msg.client_id, receipt.leaf_hash, opened is not None,
                header and header.schema, opened.body if opened else None,
                header and header.parent_id, header and header.att_root,
                header.expires_at if header else None,
            )  # fmt: skip

    def _opened(self, msg: Msg) -> Opened | None:
        """Decrypt with the first key that fits; None when none does."""
        profile = self.profiles.get(msg.profile_id)
        if profile is None:
            return None
        try:
            return open_with_any(list(self.keys), msg, profile, self.limits)
        except Unopenable:
            return None


def by_day(rows: Iterator[tuple[Any, ...]]) -> dict[int, list[tuple[Any, ...]]]:
    """Rows by the UTC day of their hub_ts, counted from 1970."""
    days: dict[int, list[tuple[Any, ...]]] = {}
    for row in rows:
        days.setdefault(row[4] // DAY_SEC, []).append(row)
    return days


def batch(rows: Sequence[tuple[Any, ...]]) -> pa.RecordBatch:
    columns = zip(*rows, strict=True)
    arrays = [pa.array(column, kind) for column, kind in zip(columns, ARROW.types, strict=True)]
    return pa.record_batch(arrays, schema=ARROW)


def _verify(msg: Msg, leaf_hash: bytes) -> None:
    if not msg.signature_is_valid():
        raise Untrusted("the message is not signed by its client")
    if msg.leaf_hash() != leaf_hash:
        raise Untrusted("the receipt is for another message")


@dataclass(frozen=True, slots=True)
class EventWriter:
    """Writes chunks below ``prefix``; a file name contains its digest."""

    objects: ObjectStore
    prefix: str
    readership: Readership

    def write(self, chunk: ArchivedChunk, stream: LabelledStream) -> EventChunk:
        """Write the files of a chunk; they belong to the table once a manifest names them."""
        with tempfile.TemporaryDirectory(prefix="veen-events-") as scratch:
            spool = _Spool(Path(scratch))
            with ExitStack() as stack:
                for entries in windows(self.objects, chunk, self.readership.limits):
                    spool.take(by_day(self.readership.rows(entries, stream, chunk)), stack)
            files = tuple(self._put(path, day, spool, chunk, stream) for day, path in spool.paths())
        name = chunk.name
        return EventChunk(
            start_seq=name.start_seq,
            end_seq=name.end_seq,
            rows=sum(file.rows for file in files),
            opened=spool.opened,
            files=files,
        )

    def _put(
        self, path: Path, day: int, spool: _Spool, chunk: ArchivedChunk, stream: LabelledStream
    ) -> EventFile:
        with path.open("rb") as file:
            sha256 = digest_of(file)
        folder = f"stream={_stream(stream, chunk)}/day={_date(day)}"
        key = f"{self.prefix}/{folder}/{_name(chunk, sha256)}"
        self.objects.put_file(key, path)
        return EventFile(
            key=key,
            day=_date(day),
            rows=spool.rows[day],
            size=path.stat().st_size,
            sha256=sha256,
        )


class _Spool:
    """Files being written, one for each day, a window of entries at a time."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._writers: dict[int, pq.ParquetWriter] = {}
        self.rows: dict[int, int] = {}
        self.opened = 0

    def take(self, days: dict[int, list[tuple[Any, ...]]], stack: ExitStack) -> None:
        for day, rows in days.items():
            if day not in self._writers:
                writer = pq.ParquetWriter(self._path(day), ARROW, **_WRITER)
                self._writers[day] = stack.enter_context(writer)
            self._writers[day].write_batch(batch(rows))
            self.rows[day] = self.rows.get(day, 0) + len(rows)
            self.opened += sum(row[_OPENED] for row in rows)

    def paths(self) -> Iterator[tuple[int, Path]]:
        return ((day, self._path(day)) for day in sorted(self.rows))

    def _path(self, day: int) -> Path:
        return self._folder / f"{day}.parquet"


def _stream(stream: LabelledStream, chunk: ArchivedChunk) -> str:
    return stream.stream_id.hex() if stream.stream_id else f"label-{chunk.name.label.hex()}"


def _name(chunk: ArchivedChunk, sha256: bytes) -> str:
    stem = chunk_file(chunk.name).removeprefix("log/").removesuffix(".log")
    return f"{stem}-{sha256[:8].hex()}.parquet"


def _date(day: int) -> str:
    return datetime.fromtimestamp(day * DAY_SEC, UTC).strftime("%Y-%m-%d")


@dataclass(frozen=True, slots=True)
class ReaderIdentity:
    """The location of the reader's identity, which is the same on every host; keys are not sent."""

    client: Path
    passphrase_file: Path | None

    def keys(self) -> tuple[bytes, ...]:
        return identity_in(self.client, self.passphrase_file).readers()

    def name(self) -> bytes:
        return identity_in(self.client, self.passphrase_file).card.id_sign


class EventWork(NamedTuple):
    """A chunk to turn into events, and its stream."""

    chunk: ArchivedChunk
    stream: LabelledStream


class Done(NamedTuple):
    """The result of a chunk: its events, or why it was refused."""

    chunk: ArchivedChunk
    events: EventChunk | None
    refused: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class EventTerms:
    """The parameters of every task; ``readership`` gets its keys on the executor."""

    services: StoreRef
    prefix: str
    readership: Readership
    reader: ReaderIdentity


def write_one(terms: EventTerms, work: EventWork) -> Done:
    """Write the events of a chunk to the store; idempotent."""
    readership = replace(terms.readership, keys=terms.reader.keys())
    writer = EventWriter(terms.services.to_put().objects, terms.prefix, readership)
    try:
        return Done(work.chunk, writer.write(work.chunk, work.stream))
    except (Untrusted, Malformed, ObjectMissing) as error:
        return Done(work.chunk, None, str(error))
