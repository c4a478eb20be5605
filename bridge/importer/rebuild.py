"""The import ledger made again from the logs of this zone, by an identity that may read them.

What is in the import streams is what is held; each event is verified before it counts. Carriers
that waited, or were being committed, go back to the inbox and are looked at anew.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final, NamedTuple

from bridge import identities
from bridge.audit_events import ImportBegin, ImportBlocked, ImportSuccess, LedgerRebuilt
from bridge.carrier.open_set import CarrierSet
from bridge.carrier.watch import Watch, unwatched
from bridge.importer.airlock import Airlock
from bridge.importer.audited import Audited, read_audited
from bridge.importer.closing import close
from bridge.importer.commit import PLAN_NOTE
from bridge.importer.imported_stream import Written, read_import_stream
from bridge.importer.ledger_tables import BundleRow, Closing, Restored, Run, Stream, Uncovered
from bridge.importer.outcome import State
from bridge.importer.run import LAST_PLAN, Order, importing, opened
from bridge.importer.tools import Tools
from bridge.importer.trust_told import Told
from bridge.importer.work import bags_in
from bridge.refusal import Refused
from bridge.settings import Settings
from bridge.stream_map import Route
from veen.client.client import Client
from veen.client.surroundings import Surroundings
from veen.client.transport import Patience
from veen.settings_table import BadSettings

_FILES: Final = ("", "-wal", "-shm")


class Rebuilt(NamedTuple):
    streams: int
    bundles: int
    events: int


def rebuild_ledger(
    settings: Settings,
    order: Order,
    surroundings: Surroundings,
    patience: Patience | None = None,
    watch: Watch = unwatched,
) -> Rebuilt:
    """Set the ledger aside and make it again."""
    if settings.reader is None:
        raise BadSettings("no [reader] is given: name an identity that reads the import streams")
    airlock = Airlock(importing(settings).state)
    with airlock.locked():
        _set_aside(airlock)
    with (
        opened(settings, order, surroundings, patience, watch) as tools,
        identities.open_client(
            settings.hub,
            settings.reader,
            surroundings=surroundings,
            patience=patience,
            keys=settings.reader_keys,
        ) as reader,
    ):
        # What was handed over before the ledger was lost belongs to what is held.
        tools.bridge.flush()
        tools.trail.settle()
        return _rebuild(tools, reader)


def _rebuild(tools: Tools, reader: Client) -> Rebuilt:
    audited = read_audited(reader, tools.trail.author)
    written = [_written(tools, reader, route) for route in tools.streams.routes]
    runs = [(one.stream, run) for one in written for run in one.runs]
    rows, late = _rows(tools, written, audited)
    found = Rebuilt(len({stream for stream, _ in runs}), len(rows), sum(map(_size, written)))
    told = f"{found.events} events of {found.bundles} bundles are held"
    event = LedgerRebuilt(
        operator=tools.operator, streams=found.streams, bundles=found.bundles, told=told
    )
    closing = Closing(
        token=tools.random(16),
        bodies=tuple(tools.trail.body(one) for one in (*late, event)),
        moves=_back_to_inbox(tools.airlock),
        removals=tuple(tools.airlock.inside(place) for place in _unfinished(tools.airlock)),
    )
    frozen = [(Stream(one.source_hub_id, one.stream), one) for one in audited.forks]
    uncovered = _uncovered(tools, written, audited)
    routes = {(one.hub_id, one.source) for one in tools.streams.routes}
    rejected = [
        _rejected(one)
        for one in audited.rejected.values()
        if (one.source_hub_id, one.stream) in routes
    ]
    restored = Restored([*rejected, *rows], runs, frozen, uncovered)
    last = LAST_PLAN, tools.bridge.note(PLAN_NOTE) or b""
    tools.ledger.restore(restored, closing, last, Told.of(audited.trust).encode())
    close(tools, closing)
    _note_carriers(tools)
    return found


def _written(tools: Tools, reader: Client, route: Route) -> Written:
    with tools.watch(f"reading {route.target}", "events") as progress:
        author = tools.bridge.session.identity.client_id
        return read_import_stream(reader, route, tools.trust, progress, bridge_id=author)


def _rows(
    tools: Tools, written: list[Written], audited: Audited
) -> tuple[list[BundleRow], list[ImportSuccess]]:
    """The bundles that are here, and the successes that nobody had told of yet."""
    rows: list[BundleRow] = []
    late: list[ImportSuccess] = []
    for one in written:
        for bundle_id, runs in one.by_bundle().items():
            success, begin = audited.succeeded.get(bundle_id), audited.begun.get(bundle_id)
            is_whole = bundle_id in one.whole
            rows.append(_row(one, bundle_id, runs, success or begin, is_whole))
            if success is None and begin is not None and is_whole:
                late.append(_success(tools, one, bundle_id, begin))
    return rows, late


def _row(
    written: Written,
    bundle_id: bytes,
    runs: list[Run],
    told: ImportBegin | ImportSuccess | None,
    is_whole: bool,
) -> BundleRow:
    return BundleRow(
        bundle_id=bundle_id,
        state=(State.IMPORTED if is_whole else State.PARTIAL).value,
        source_hub_id=written.stream.source_hub_id,
        stream=written.stream.name,
        target=written.target,
        from_seq=told.from_seq if told else runs[0].span.first,
        to_seq=told.to_seq if told else runs[-1].span.last,
        checkpoint_id=bytes(32),
        checkpoint_at=0,
        sha256=told.sha256 if told else bytes(32),
        told="" if is_whole else "its import was cut short; bring its carrier again",
    )


def _success(tools: Tools, written: Written, bundle_id: bytes, begin: ImportBegin) -> ImportSuccess:
    first, last, imported, excluded = written.places[bundle_id]
    return ImportSuccess(
        operator=tools.operator,
        bundle_id=bundle_id,
        sha256=begin.sha256,
        source_hub_id=begin.source_hub_id,
        stream=begin.stream,
        from_seq=begin.from_seq,
        to_seq=begin.to_seq,
        count=begin.count,
        target=written.target,
        target_from=first,
        target_to=last,
        imported=imported,
        duplicates=begin.count - imported,
        excluded=excluded,
        verification_result="told from the import stream, when the ledger was made again",
        resumed_from=imported,
    )


def _rejected(told: ImportBlocked) -> BundleRow:
    """That people decided against a bundle outlives the ledger."""
    return BundleRow(
        bundle_id=told.bundle_id,
        state=State.REJECTED.value,
        source_hub_id=told.source_hub_id,
        stream=told.stream,
        target="",
        from_seq=told.from_seq,
        to_seq=told.to_seq,
        checkpoint_id=bytes(32),
        checkpoint_at=0,
        sha256=told.sha256,
        told=told.told,
    )


def _uncovered(tools: Tools, written: list[Written], audited: Audited) -> list[Uncovered]:
    """What a checkpoint is asked for and none is known of: rather once too often."""
    if tools.settings.checkpoint is None:
        return []
    return [
        Uncovered(bundle_id, one.places[bundle_id].last)
        for one in written
        for bundle_id in sorted(one.whole - audited.covered)
    ]


def _size(written: Written) -> int:
    return sum(run.span.size for run in written.runs)


def _unfinished(airlock: Airlock) -> list[Path]:
    folders = (airlock.root / "waiting", airlock.root / "committing")
    return [place for folder in folders for place in sorted(folder.iterdir())]


def _back_to_inbox(airlock: Airlock) -> tuple[tuple[str, str], ...]:
    return tuple(
        (airlock.inside(bag), f"inbox/again-{place.name}-{bag.name}")
        for place in _unfinished(airlock)
        for bag in bags_in(place)
    )


def _note_carriers(tools: Tools) -> None:
    """What the ledgers of archived carriers tell; sealed ones told it when they were opened."""
    for place in sorted(tools.airlock.archive("").iterdir()):
        try:
            with CarrierSet(bags_in(place)) as found:
                found.verify_signatures(tools.trust)
                told = found.carrier.ledger
                if told is not None:
                    tools.ledger.note_carrier(told)
                if told is not None and told.tail[-1].bundle_id is None:
                    tools.ledger.note_heartbeat(told)
        except Refused:
            continue


def _set_aside(airlock: Airlock) -> None:
    """The old ledger stays, under a name that says so."""
    number = 1
    while airlock.ledger.with_name(f"ledger.db.old-{number}").exists():
        number += 1
    for suffix in _FILES:
        path: Path = airlock.ledger.with_name(f"ledger.db{suffix}")
        if path.exists():
            path.rename(path.with_name(f"ledger.db.old-{number}{suffix}"))
