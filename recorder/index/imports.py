"""Imported events in the index, and the import streams and pinned hubs they are taken from.

The list of import streams is stored beside the generations of the index: it cannot be derived from
a log, and a rebuild must not lose it.

An imported event is indexed twice. Under the import stream it answers queries of this zone: roots
and receipts are those of this zone's hub, and the table ``origins`` has the position of the event
at its origin. Under the stream of its origin, a query of the other zone can be run again here
(Query API 9.1): scope, roots and receipts are those of the origin's hub.

A bundle in an import stream counts only when it is complete, and a stream of the origin is indexed
up to the first event that is missing. A message of the bridge that no key opens, or an event whose
origin is not pinned, stops its stream: it is reported, and the position stays before it. A message
that is not an imported event, or that was sealed by another sender, is indexed with its fault.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from recorder.index.tables import IndexedStream, IndexHome, SourceRow, transaction
from recorder.index.writer import EventReading, IndexWriter
from veen.client.client import Client
from veen.client.log_head import Pair
from veen.client.transport import HubRefused
from veen.errors import Code, Malformed, Undecryptable, Unopenable, Untrusted, VeenError
from veen.events import (
    ImportedEvent,
    ImportFault,
    NotAnEvent,
    NotImported,
    Visibility,
    read_imported,
)
from veen.hub_identity import HubIdentity
from veen.msg import Msg
from veen.receipt import Receipt
from veen.system import durable
from veen.wire.api import StreamInfo
from veen.wire.objects import WireMap
from veen.wire.schema import Version

_log = logging.getLogger(__name__)


EXCLUDED: Final = "EXCLUDED"
"""The fault of an event that the policy of this zone excludes."""
_BATCH: Final = 500
_LAST_MESSAGE: Final = (
    "SELECT msg FROM origins JOIN pairs USING (place) WHERE stream_no = ? "
    "ORDER BY place DESC LIMIT 1"
)


class NotOpened(VeenError):
    """A message of a bridge in an import stream that no key of this reader opens."""

    def __init__(self, target: str, seq: int) -> None:
        super().__init__(
            f"{target}, stream_seq {seq}: no key of this reader opens it; name the keystore of the "
            "card that imports are sealed to as reader_keys in [recorder.hub]"
        )
        self.seq = seq


class _NotVerified(Untrusted):
    """An imported event whose origin is not pinned, or has not signed it."""


@dataclass(frozen=True, slots=True)
class EventOrigin:
    """An event at its position at the origin; ``at`` is its position in the import stream."""

    at: int
    event: ImportedEvent
    receipt: Receipt

    @property
    def key(self) -> tuple[bytes, str]:
        """The stream at the origin."""
        return self.event.source_hub_id, self.event.origin_stream


@dataclass(frozen=True, slots=True)
class OriginPair:
    """A pair for the writer; an excluded event has no message."""

    msg: Msg | None
    receipt: Receipt


@dataclass(slots=True)
class PendingImports:
    """Events of a stream of the origin that were read but are not indexed yet, by number."""

    events: dict[int, EventOrigin] = field(default_factory=dict)

    def following(self, position: int) -> Iterator[EventOrigin]:
        while position + 1 in self.events:
            position += 1
            yield self.events.pop(position)


@dataclass(frozen=True, slots=True)
class ImportMessage:
    """A message of an import stream: its event, or the fault why there is none.

    ``body_key`` opens the body of the message itself, not that of the origin's.
    """

    pair: Pair
    event: ImportedEvent | None
    fault: str | None
    body_key: bytes | None

    def reading(self) -> EventReading:
        if self.event is None:
            return EventReading(self.fault or ImportFault.MALFORMED.name)
        return _reading(self.event, self.body_key)


class ImportedFollower:
    """Indexes import streams; ``hubs`` are the pinned identities of the origins' hubs."""

    def __init__(
        self,
        client: Client,
        writer: IndexWriter,
        hubs: Mapping[bytes, HubIdentity],
        targets: frozenset[str],
    ) -> None:
        self._client = client
        self._writer = writer
        self._hubs = hubs
        self._targets = targets

    def round(self) -> int:
        """Index what is new in every import stream; return how many events."""
        return sum(self.catch_up(target) for target in sorted(self._targets))

    def catch_up(self, target: str) -> int:
        """Index what is new in an import stream; return how many events.

        Reading starts at the first event that is not indexed, so that events waiting for a gap to
        close or for the rest of their bundle need not be stored. Events before a message that stops
        the stream are indexed; then the error is raised.
        """
        scan = _ImportScan(self._writer, target)
        failure: VeenError | None = None
        try:
            for pair in self._client.read(target, from_seq=scan.start + 1):
                scan.take(self._read(target, pair))
            scan.decide()
        except (NotOpened, _NotVerified) as error:
            failure = error
        count = scan.finish()
        if failure is not None:
            raise failure
        return count

    def _read(self, target: str, pair: Pair) -> ImportMessage:
        """Decrypt a message, and verify the origin's signatures of its event."""
        where = f"{target}, stream_seq {pair.receipt.stream_seq}"
        try:
            opened = self._client.open_payload(pair.msg)
            event = read_imported(opened.header.schema, opened.body, pair.msg.client_id)
        except Undecryptable:
            return ImportMessage(pair, None, ImportFault.UNOPENED.name, None)
        except NotImported as error:
            return ImportMessage(pair, None, error.fault.name, None)
        except (Malformed, Unopenable):
            return ImportMessage(pair, None, ImportFault.MALFORMED.name, None)
        hub = self._hubs.get(event.source_hub_id)
        if hub is None:
            raise _NotVerified(
                f"{where}: hub {event.source_hub_id.hex()} is not pinned; add it to the trust "
                "store and run veen recorder index imports again"
            )
        try:
            event.verify(hub)
        except Untrusted as error:
            raise _NotVerified(f"{where}: {error}") from error
        return ImportMessage(pair, event, None, opened.body_key)


class _ImportScan:
    """One pass over an import stream, with the positions reached here and at the origin.

    Other clients may write to the stream and seal to anyone, and must not stop the index. So a
    message that no key opens is an error only if its client has also written an event that was
    read, or if no client has, since then this reader may lack the key to all events.
    """

    def __init__(self, writer: IndexWriter, target: str) -> None:
        self._writer = writer
        self._target = target
        self._row = writer.stream(target)
        self._seen: Visibility[EventOrigin] = Visibility()
        self._waiting: dict[tuple[bytes, str], PendingImports] = {}
        self._pending: list[ImportMessage] = []
        self._complete_at: dict[bytes, int] = {}
        self._count = 0
        self._writers = set(self._known_writers())
        self._unopened: dict[bytes, int] = {}
        """By client, the first undecided message that no key opens."""
        self._end: int | None = None
        self.start = self._last = min(self._cursor(), self._row.position)

    def take(self, read: ImportMessage) -> None:
        self._verify_opened(read)
        self._last = read.pair.receipt.stream_seq
        if self._last > self._row.position:
            self._pending.append(read)
        if read.event is None:
            return
        if read.event.is_last:
            self._complete_at[read.event.bundle_id] = self._last
        for origin in self._seen.add(
            read.event, EventOrigin(self._last, read.event, read.event.receipt())
        ):
            pending = self._waiting.setdefault(origin.key, PendingImports())
            pending.events[origin.receipt.stream_seq] = origin
            if len(pending.events) >= _BATCH:
                self._count += self._index(origin.key, pending)
        if read.event.is_last and len(self._pending) >= _BATCH:
            self._append()

    def decide(self) -> None:
        """At the end of the stream: unopened messages are of other clients, unless no event was
        read."""
        if not self._writers:
            for seq in self._unopened.values():
                self._stop_at(seq)
        self._unopened = {}

    def _verify_opened(self, read: ImportMessage) -> None:
        client_id, seq = read.pair.msg.client_id, read.pair.receipt.stream_seq
        if read.fault == ImportFault.UNOPENED.name:
            if client_id in self._writers:
                self._stop_at(seq)
            self._unopened.setdefault(client_id, seq)
        elif read.event is not None and client_id not in self._writers:
            self._writers.add(client_id)
            if client_id in self._unopened:
                self._stop_at(self._unopened[client_id])

    def _stop_at(self, seq: int) -> None:
        self._end = seq - 1
        raise NotOpened(self._target, seq)

    def finish(self) -> int:
        self._append()
        self._count += sum(self._index(key, held) for key, held in self._waiting.items())
        left = [event.at for held in self._waiting.values() for event in held.events.values()]
        left += [origin.at for origin in self._seen.held_back()]
        with transaction(self._writer.db):
            seq = min([*left, self._bound() + 1, self._last + 1]) - 1
            self._writer.note(f"imported {self._target}", seq)
        return self._count

    def _bound(self) -> int:
        """The last position that may be passed: before any undecided message."""
        bounds = [seq - 1 for seq in self._unopened.values()]
        return min(bounds if self._end is None else [*bounds, self._end], default=self._last)

    def _known_writers(self) -> Iterator[bytes]:
        """The client that wrote the last indexed event."""
        for (raw,) in self._writer.db.execute(_LAST_MESSAGE, (self._row.stream_no,)):
            yield Msg.decode(raw).client_id

    def _append(self) -> None:
        """Index the import stream up to the first event of an incomplete bundle."""
        whole, bound = len(self._pending), self._bound()
        for number, message in enumerate(self._pending):
            event = message.event
            is_half = event is not None and event.bundle_id not in self._complete_at
            if is_half or message.pair.receipt.stream_seq > bound:
                whole = number
                break
        ready, self._pending = self._pending[:whole], self._pending[whole:]
        for start in range(0, len(ready), _BATCH):
            batch = ready[start : start + _BATCH]
            self._row = self._writer.append(
                self._row,
                [message.pair for message in batch],
                [message.reading() for message in batch],
                [source for message in batch for source in self._sources(message)],
            )

    def _sources(self, read: ImportMessage) -> Iterator[SourceRow]:
        if read.event is None:
            return
        receipt = read.event.receipt()
        yield SourceRow(
            place=self._row.place(read.pair.receipt.stream_seq),
            stream_no=self._row.stream_no,
            complete_at=self._complete_at[read.event.bundle_id],
            hub_id=read.event.source_hub_id,
            stream=read.event.origin_stream,
            seq=receipt.stream_seq,
            hub_ts=receipt.hub_ts,
            leaf_hash=receipt.leaf_hash,
        )

    def _index(self, key: tuple[bytes, str], held: PendingImports) -> int:
        hub_id, name = key
        row: IndexedStream = self._writer.stream(name, hub_id)
        for seq in [seq for seq in held.events if seq <= row.position]:
            # Seen again after a restart; it was indexed then.
            del held.events[seq]
        origins = list(held.following(row.position))
        for start in range(0, len(origins), _BATCH):
            batch = origins[start : start + _BATCH]
            pairs = [OriginPair(origin.event.msg(), origin.receipt) for origin in batch]
            readings = [_reading(origin.event, origin.event.body_key) for origin in batch]
            row = self._writer.append(row, pairs, readings)
        with transaction(self._writer.db):
            # The origin's head is unknown here, so the stream counts as caught up.
            self._writer.update(row._replace(head_seq=row.position, head_ts=row.last_ts))
        return len(origins)

    def _cursor(self) -> int:
        row = self._writer.db.execute(
            "SELECT value FROM meta WHERE key = ?", (f"imported {self._target}",)
        ).fetchone()
        return int(row[0]) if row else 0


def _reading(event: ImportedEvent, body_key: bytes | None) -> EventReading:
    """The reading of the origin's event; ``body_key`` is of the message stored beside it."""
    if event.excluded is not None:
        return EventReading(EXCLUDED)
    try:
        origin_event = event.origin_event()
    except NotAnEvent as error:
        return EventReading(error.fault.name)
    return EventReading(
        None,
        origin_event.subject_id,
        origin_event.principal_id,
        origin_event.event_type,
        origin_event.event_time,
        origin_event.origin,
        bytes(origin_event.payload),
        body_key,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Imports(WireMap):
    """The import streams and pinned hubs of an index.

    The hubs were verified when they were pinned.
    """

    ver: Version = 1
    streams: tuple[str, ...] = ()
    hubs: tuple[HubIdentity, ...] = ()

    def joined(self, streams: Iterable[str], hubs: Mapping[bytes, HubIdentity]) -> Imports:
        """Add streams and hubs; of a known hub the newer identity is taken."""
        known = {hub.hub_id: hub for hub in self.hubs}
        for hub_id, given in hubs.items():
            if hub_id not in known or not _is_older(given, known[hub_id]):
                known[hub_id] = given
        return Imports(
            streams=tuple(sorted({*self.streams, *streams})),
            hubs=tuple(known[hub_id] for hub_id in sorted(known)),
        )

    def follower(self, client: Client, writer: IndexWriter) -> ImportedFollower:
        hubs = {hub.hub_id: hub for hub in self.hubs}
        return ImportedFollower(client, writer, hubs, frozenset(self.streams))


def _is_older(given: HubIdentity, known: HubIdentity) -> bool:
    """Whether the current key of one identity has retired in the other.

    Keys are not compared one by one: a trust directory omits those that it revokes.
    """
    retired = {key.key_id for key in known.hub_keys if key.valid_until is not None}
    return given.current.valid_until is None and given.current.key_id in retired


def read_import(home: IndexHome) -> Imports:
    """Read the configured imports; empty without any."""
    try:
        return Imports.decode(home.imports.read_bytes())
    except FileNotFoundError:
        return Imports()
    except Malformed as error:
        raise Malformed(
            f"{home.imports}: {error}; remove it, and run veen recorder index imports again"
        ) from error


def store_import(home: IndexHome, imports: Imports) -> None:
    """Store the imports; a running follower uses them in its next round."""
    durable.make_directory(home.root)
    durable.write(home.imports, imports.encode())


class ImportTurns:
    """The imports of a followed index: each stream is read again when it has grown.

    A stream that fails verification is left at its position and reported; the others continue.
    """

    def __init__(self, client: Client, writer: IndexWriter) -> None:
        self._client = client
        self._writer = writer
        self._home = IndexHome(writer.generation.root.parent)
        self._requested = Imports()
        self._heads: dict[str, int] = {}
        self._troubles: dict[str, str] = {}

    @property
    def trouble(self) -> str | None:
        return next(iter(self._troubles.values()), None)

    def round(self, infos: Sequence[StreamInfo]) -> int:
        """Index what is new; ``infos`` is what the hub states of its streams.

        Returns how many events were indexed.
        """
        imports = read_import(self._home)
        if imports != self._requested:
            self._requested, self._heads, self._troubles = imports, {}, {}
        follower = imports.follower(self._client, self._writer)
        heads = {
            info.name: max((label.last_stream_seq for label in info.labels), default=0)
            for info in infos
        }
        self._note_heads(imports.streams, infos)
        return sum(self._take(follower, name, heads.get(name)) for name in imports.streams)

    def _note_heads(self, streams: Sequence[str], infos: Sequence[StreamInfo]) -> None:
        """Store the heads stated by the hub, so that a lag is visible."""
        imports = [info for info in infos if info.name in streams and info.labels]
        rows = [
            self._writer.stream(info.name)._replace(
                head_seq=max(label.last_stream_seq for label in info.labels),
                head_ts=max(label.last_hub_ts for label in info.labels),
            )
            for info in imports
        ]
        with transaction(self._writer.db):
            for row in rows:
                self._writer.update(row)

    def _take(self, follower: ImportedFollower, target: str, head: int | None) -> int:
        """Read a stream unless its head is unchanged.

        The hub states no head for unknown streams.
        """
        if head is not None and self._heads.get(target, 0) == head:
            return 0
        try:
            count = follower.catch_up(target)
        except HubRefused as error:
            if error.code == Code.UNAVAILABLE.value:
                raise
            count = 0 if error.code == Code.NOT_FOUND.value else self._left(target, error)
        except (Untrusted, NotOpened) as error:
            count = self._left(target, error)
        else:
            self._troubles.pop(target, None)
        self._heads[target] = head or 0
        return count

    def _left(self, target: str, error: VeenError) -> int:
        detail = f"imports of {target} are not indexed: {error}"
        _log.critical("%s", detail)
        self._troubles[target] = detail
        return 0
