"""What the import streams hold, event by event, as their readers may count it (AGB0 4.5)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial

from bridge.audit import Recorded
from bridge.audit_events import parse
from bridge.reconcile.facts import Held, Import, Stranger
from veen.client.client import Client
from veen.errors import Malformed, Unopenable, Untrusted, VeenError
from veen.foreign import Foreign
from veen.import_event import ImportedEvent, Visibility, read_imported
from veen.receipt import Receipt
from veen.record_event import NotAnEvent


@dataclass(frozen=True, slots=True)
class Placed:
    """An imported event and its place; ``is_seen`` once its bundle is there to its last event."""

    target: str
    seq: int
    event: ImportedEvent
    receipt: Receipt
    is_seen: bool

    @property
    def held(self) -> Held:
        if not self.is_seen:
            return Held.UNSEEN
        return Held.IMPORTED if self.event.excluded is None else Held.EXCLUDED


def walk(reader: Client, target: str, author: bytes | None = None) -> Iterator[Placed | Stranger]:
    """All of one import stream, each message verified to stand in the hub's log.

    A message that cannot be opened or is no imported event is a Stranger. One of ``author``, or of
    another client that imports here, must open: what it says must not be guessed, so that ends it.
    """
    pending: Visibility[Placed] = Visibility()
    foreign = Foreign(partial(_unopened, target), author)
    for pair in reader.read(target):
        seq, client_id = pair.receipt.stream_seq, pair.msg.client_id
        try:
            opened = reader.open_payload(pair.msg)
            event = read_imported(opened.header.schema, opened.body, client_id)
        except Unopenable as error:
            foreign.unread(seq, client_id, error)
            yield Stranger(target, seq)
            continue
        except Malformed:
            yield Stranger(target, seq)
            continue
        foreign.read(client_id)
        yield from pending.add(event, Placed(target, seq, event, event.receipt(), is_seen=True))
    foreign.finish()
    for one in pending.held_back():
        yield Placed(one.target, one.seq, one.event, one.receipt, is_seen=False)


def import_facts(placed: Iterable[Placed | Stranger]) -> Iterator[Import | Stranger]:
    """Runs of events that follow each other in both streams; times are those of their ends."""
    run: Import | None = None
    for one in placed:
        if isinstance(one, Stranger):
            yield one
            continue
        if run is not None and _follows(run, one):
            run = run._replace(
                last=one.receipt.stream_seq, time_last=one.receipt.hub_ts, root=one.receipt.mmr_root
            )
            continue
        if run is not None:
            yield run
        run = _run(one)
    if run is not None:
        yield run


def carried_log(placed: Iterable[Placed | Stranger]) -> Iterator[Recorded]:
    """The exporting side's audit log, from the import stream it came in; what was kept out of it
    or cannot be read is passed over, and shows as events of that stream.
    """
    for one in placed:
        if isinstance(one, Placed) and one.held is Held.IMPORTED:
            try:
                event = parse(one.event.origin_event())
            except (NotAnEvent, Malformed):
                continue
            yield Recorded(one.receipt.stream_seq, one.receipt.hub_ts, event)


def _unopened(target: str, seq: int, error: VeenError) -> VeenError:
    found = Untrusted(
        f"{target}, stream_seq {seq}: {error}; read it with the identity that the importer seals to"
    )
    found.__cause__ = error
    return found


def _run(one: Placed) -> Import:
    seq, hub_ts = one.receipt.stream_seq, one.receipt.hub_ts
    return Import(
        one.event.source_hub_id,
        one.event.origin_stream,
        seq,
        seq,
        one.event.bundle_id,
        one.held,
        one.target,
        one.seq,
        hub_ts,
        hub_ts,
        one.receipt.mmr_root,
    )


def _follows(run: Import, one: Placed) -> bool:
    mine = (run.hub_id, run.stream, run.last + 1, run.bundle_id, run.held, run.target)
    due = one.event.source_hub_id, one.event.origin_stream, one.receipt.stream_seq
    ahead = one.seq - one.receipt.stream_seq == run.target_first - run.first
    return ahead and mine == (*due, one.event.bundle_id, one.held, one.target)
