"""Which import streams an index takes up, and the pinned hubs that their events come from.

It lies beside the generations of the index: no log tells it, and a rebuild must not lose it.

Imported events in the index: under their place here, and under that at their origin.

Under the import stream they answer queries of this zone: the roots and receipts are those of this
zone's hub, and the table ``origins`` has the place that each event has at its origin. Under the
origin's stream a query that was asked in the other zone can be run again here (Query API 9.1): its
scope, roots and receipts are those of the origin's hub.

What an import stream holds of a bundle counts only when all of it is there, and a stream of the
origin is indexed up to the first event that is not here. A message of the bridge that no key opens,
and an event whose origin is not pinned, end the look at their stream: they are reported, and the
position stays before them. A message that is no imported event, and one that somebody else has
sealed, is indexed with its fault, as anywhere else.
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

EXCLUDED: Final = "EXCLUDED"
"""The fault of an event that this zone's policy keeps out."""
_BATCH: Final = 500
_LAST_READ: Final = (
    "SELECT msg FROM origins JOIN pairs USING (place) WHERE stream_no = ? "
    "ORDER BY place DESC LIMIT 1"
)


class NotOpened(VeenError):
    """A message that a bridge has written to an import stream, and no key of this reader opens."""

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
    """An event at its origin's place; ``at`` is where it stands in the import stream."""

    at: int
    event: ImportedEvent
    receipt: Receipt

    @property
    def key(self) -> tuple[bytes, str]:
        """The stream at the origin."""
        return self.event.source_hub_id, self.event.origin_stream


@dataclass(frozen=True, slots=True)
class OriginPair:
    """As the writer takes a pair; an event that was kept out has no message."""

    msg: Msg | None
    receipt: Receipt


@dataclass(slots=True)
class PendingImports:
    """Events of one origin's stream that are here, by number, beyond those that are indexed."""

    events: dict[int, EventOrigin] = field(default_factory=dict)

    def following(self, position: int) -> Iterator[EventOrigin]:
        while position + 1 in self.events:
            position += 1
            yield self.events.pop(position)


@dataclass(frozen=True, slots=True)
class Read:
    """A message of an import stream: the event it holds, or the fault for which it holds none.

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
    """``hubs`` are the pinned identities of the origins' hubs; ``targets`` the import streams."""

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
        """One look at every import stream; how many events were indexed."""
        return sum(self.catch_up(target) for target in sorted(self._targets))

    def catch_up(self, target: str) -> int:
        """Index what one import stream has beyond our place; how many events that were.

        Everything is read again from the first event that is not indexed, so that nothing
        needs to be kept of what waits for a gap to close or for the rest of its bundle. What
        stands before a message that ends the look is indexed; then the reason is raised.
        """
        look = _Look(self._writer, target)
        trouble: VeenError | None = None
        try:
            for pair in self._client.read(target, from_seq=look.start + 1):
                look.take(self._read(target, pair))
            look.decide()
        except (NotOpened, _NotVerified) as error:
            trouble = error
        count = look.finish()
        if trouble is not None:
            raise trouble
        return count

    def _read(self, target: str, pair: Pair) -> Read:
        """The message, the origin's signatures verified where it holds an event."""
        where = f"{target}, stream_seq {pair.receipt.stream_seq}"
        try:
            opened = self._client.open_payload(pair.msg)
            event = read_imported(opened.header.schema, opened.body, pair.msg.client_id)
        except Undecryptable:
            return Read(pair, None, ImportFault.UNOPENED.name, None)
        except NotImported as error:
            return Read(pair, None, error.fault.name, None)
        except (Malformed, Unopenable):
            return Read(pair, None, ImportFault.MALFORMED.name, None)
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
        return Read(pair, event, None, opened.body_key)


class _Look:
    """What one look at an import stream takes in, and how far it has come in both places.

    Who else may write there can seal to anybody, and must not hold the index up. So a message that
    no key opens is trouble where its client has written an event that was read, before or after;
    and where nobody has, because then this reader may lack the key to all of them.
    """

    def __init__(self, writer: IndexWriter, target: str) -> None:
        self._writer = writer
        self._target = target
        self._row = writer.stream(target)
        self._seen: Visibility[EventOrigin] = Visibility()
        self._waiting: dict[tuple[bytes, str], PendingImports] = {}
        self._pending: list[Read] = []
        self._complete_at: dict[bytes, int] = {}
        self._count = 0
        self._writers = set(self._known_writers())
        self._unopened: dict[bytes, int] = {}
        """By client, the first of its messages that no key opens and that is undecided."""
        self._end: int | None = None
        self.start = self._last = min(self._cursor(), self._row.position)

    def take(self, read: Read) -> None:
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
            held = self._waiting.setdefault(origin.key, PendingImports())
            held.events[origin.receipt.stream_seq] = origin
            if len(held.events) >= _BATCH:
                self._count += self._index(origin.key, held)
        if read.event.is_last and len(self._pending) >= _BATCH:
            self._append()

    def decide(self) -> None:
        """At the end of the stream: what is left unopened is of others, or this reader's lack."""
        if not self._writers:
            for seq in self._unopened.values():
                self._stop_at(seq)
        self._unopened = {}

    def _verify_opened(self, read: Read) -> None:
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
        left += [item.at for item in self._seen.held_back()]
        with transaction(self._writer.db):
            seq = min([*left, self._bound() + 1, self._last + 1]) - 1
            self._writer.note(f"imported {self._target}", seq)
        return self._count

    def _bound(self) -> int:
        """The last place that may be passed: before what is not opened and not decided."""
        known = [item - 1 for item in self._unopened.values()]
        return min(known if self._end is None else [*known, self._end], default=self._last)

    def _known_writers(self) -> Iterator[bytes]:
        """Whoever wrote the last event that is indexed."""
        for (raw,) in self._writer.db.execute(_LAST_READ, (self._row.stream_no,)):
            yield Msg.decode(raw).client_id

    def _append(self) -> None:
        """Index the import stream up to the first event whose bundle is not whole yet."""
        whole, bound = len(self._pending), self._bound()
        for number, item in enumerate(self._pending):
            is_half = item.event is not None and item.event.bundle_id not in self._complete_at
            if is_half or item.pair.receipt.stream_seq > bound:
                whole = number
                break
        ready, self._pending = self._pending[:whole], self._pending[whole:]
        for start in range(0, len(ready), _BATCH):
            some = ready[start : start + _BATCH]
            self._row = self._writer.append(
                self._row,
                [item.pair for item in some],
                [item.reading() for item in some],
                [result for item in some for result in self._sources(item)],
            )

    def _sources(self, read: Read) -> Iterator[SourceRow]:
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
        for seq in [event for event in held.events if event <= row.position]:
            # Read again after a stop; the place was filled then.
            del held.events[seq]
        origins = list(held.following(row.position))
        for start in range(0, len(origins), _BATCH):
            some = origins[start : start + _BATCH]
            pairs = [OriginPair(item.event.msg(), item.receipt) for item in some]
            readings = [_reading(item.event, item.event.body_key) for item in some]
            row = self._writer.append(row, pairs, readings)
        with transaction(self._writer.db):
            # Its end is nowhere told here; what came is all there is to keep up with.
            self._writer.update(row._replace(head_seq=row.position, head_ts=row.last_ts))
        return len(origins)

    def _cursor(self) -> int:
        row = self._writer.db.execute(
            "SELECT value FROM meta WHERE key = ?", (f"imported {self._target}",)
        ).fetchone()
        return int(row[0]) if row else 0


def _reading(event: ImportedEvent, body_key: bytes | None) -> EventReading:
    """The origin's event; ``body_key`` is of the message that the index keeps beside it."""
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


_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Imports(WireMap):
    """``hubs`` were verified when they were pinned; a directory with an index is guarded."""

    ver: Version = 1
    streams: tuple[str, ...] = ()
    hubs: tuple[HubIdentity, ...] = ()

    def joined(self, streams: Iterable[str], hubs: Mapping[bytes, HubIdentity]) -> Imports:
        """With these as well; a hub that was known has its newer keys from now on."""
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
    """Whether a key that is current in one identity has retired in the other.

    Keys are not compared one by one: a trust directory leaves out those that it revokes.
    """
    retired = {key.key_id for key in known.hub_keys if key.valid_until is not None}
    return given.current.valid_until is None and given.current.key_id in retired


def read_import(home: IndexHome) -> Imports:
    """What is taken up; nothing where nobody has asked for any."""
    try:
        return Imports.decode(home.imports.read_bytes())
    except FileNotFoundError:
        return Imports()
    except Malformed as error:
        raise Malformed(
            f"{home.imports}: {error}; remove it, and run veen recorder index imports again"
        ) from error


def store_import(home: IndexHome, imports: Imports) -> None:
    """Whoever follows the index takes it up with the next look at the hub."""
    durable.make_directory(home.root)
    durable.write(home.imports, imports.encode())


class ImportTurns:
    """The imports of an index that is followed: each stream is read again when it has grown.

    One of which something does not hold is left where it is and told of; the others go on.
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
        """How many events were indexed; ``infos`` is what the hub says of its streams."""
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
        """How far each import stream goes by what the hub says, so that a lag shows."""
        known = [info for info in infos if info.name in streams and info.labels]
        rows = [
            self._writer.stream(item.name)._replace(
                head_seq=max(label.last_stream_seq for label in item.labels),
                head_ts=max(label.last_hub_ts for label in item.labels),
            )
            for item in known
        ]
        with transaction(self._writer.db):
            for row in rows:
                self._writer.update(row)

    def _take(self, follower: ImportedFollower, target: str, head: int | None) -> int:
        """A hub that lets in what it does not know has streams of which it tells no end."""
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
