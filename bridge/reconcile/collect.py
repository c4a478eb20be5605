"""The facts of one zone, from its hub, its import ledger and the carriers that lie in it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, Final, Protocol, TypeVar

from bridge.audit import Recorded, read_log
from bridge.identities import author_of
from bridge.reconcile import fact_file
from bridge.reconcile.collect_audit import is_refused, offline_facts, online_facts
from bridge.reconcile.collect_carriers import Carried, archived, ledger_facts
from bridge.reconcile.collect_imports import Placed, carried_log, import_facts, walk
from bridge.reconcile.fact_file import Fact
from bridge.reconcile.facts import Checkpoint, End, Export, Facts, Route, Stranger
from bridge.settings import Settings
from bridge.stream_map import OFFLINE_LOG, ONLINE_LOG
from veen.client import recorder_checkpoints
from veen.client.client import Client
from veen.client.errors import HubRefused
from veen.client.head import is_missing
from veen.errors import VeenError
from veen.recorder_checkpoint import RecorderCheckpoint

T = TypeVar("T")


class Listener(Protocol):
    """Who hears of everything that is read, as it is read."""

    def placed(self, one: Placed | Stranger) -> None: ...

    def online(self, one: Recorded) -> None: ...

    def offline(self, one: Recorded) -> None: ...


class Nobody:
    def placed(self, one: Placed | Stranger) -> None:
        pass

    def online(self, one: Recorded) -> None:
        pass

    def offline(self, one: Recorded) -> None:
        pass


_NOBODY: Final = Nobody()


@dataclass(frozen=True, slots=True)
class Collected:
    """``refused`` are carriers that told nothing, and why."""

    facts: Facts
    refused: tuple[str, ...] = ()


def checkpoint_fact(document: RecorderCheckpoint) -> Checkpoint:
    """Of a document that has been verified."""
    ends = [
        End(name, end.last_seq, end.mmr_root)
        for name, end in zip(document.names, document.ends, strict=True)
    ]
    return Checkpoint(
        document.hub_id,
        document.checkpoint_id,
        document.created_at,
        document.log_root,
        tuple(sorted(ends)),
    )


def collect_online(settings: Settings, reader: Client, chosen: Collection[bytes] = ()) -> Collected:
    """What the exporting side can tell: nothing of what became of its bundles. C1 is the hub's
    newest checkpoint, or the one that is ``chosen``.
    """
    session = reader.meet()
    picked = [
        one
        for one in (recorder_checkpoints.since(session, None) if chosen else ())
        if one.checkpoint_id in chosen
    ]
    source = picked[-1] if picked else recorder_checkpoints.latest(session, None)
    foreign = _Strangers()
    author = author_of(settings.audit)
    log = if_there(read_log(reader, ONLINE_LOG, author=author, left_out=foreign.add))
    sources = (checkpoint_fact(source),) if source else ()
    facts = [*online_facts(log), *_routes(settings), *foreign.found]
    return Collected(together(facts, sources, None))


def collect_offline(
    settings: Settings,
    reader: Client,
    carried: Carried,
    media: Sequence[Path] = (),
    listener: Listener = _NOBODY,
) -> Collected:
    """All that the importing side knows. C1 of a hub is the newest checkpoint that came from it
    in a carrier; C2 is this hub's own, taken before anything is read.
    """
    target = recorder_checkpoints.latest(reader.meet(), None)
    facts: list[Fact] = list(_routes(settings))
    if settings.importing is not None:
        state = settings.importing.state
        carried.add([*archived(state), *media])
        if (state / "ledger.db").exists():
            facts += ledger_facts(state / "ledger.db")
    facts += carried.facts
    for route in settings.streams.routes:
        placed = if_there(walk(reader, route.target, author_of(settings.bridge)))
        facts += _imports(route.source, heard(placed, listener.placed), listener)
    came = {one.bundle_id for one in facts if isinstance(one, Export)}
    foreign = _Strangers()
    entries = read_log(reader, OFFLINE_LOG, author=author_of(settings.audit), left_out=foreign.add)
    log = _of_routes(settings, came, if_there(entries))
    facts += offline_facts(heard(log, listener.offline))
    facts += foreign.found
    sources = tuple(checkpoint_fact(one) for one in carried.checkpoints.values())
    found = together(facts, sources, checkpoint_fact(target) if target else None)
    return Collected(found, tuple(carried.refused))


class _Strangers:
    """Messages of an audit log that are no entries of it."""

    def __init__(self) -> None:
        self.found: list[Stranger] = []

    def add(self, stream: str, seq: int, _error: VeenError) -> None:
        self.found.append(Stranger(stream, seq))


def if_there(found: Iterable[T]) -> Iterator[T]:
    """A stream that the hub does not know is one that nothing was written to. If it hides one,
    all that should be in it shows as missing.
    """
    begun = False
    try:
        for one in found:
            begun = True
            yield one
    except HubRefused as error:
        if begun or not is_missing(error):
            raise


def together(
    facts: Iterable[Fact], sources: tuple[Checkpoint, ...], target: Checkpoint | None
) -> Facts:
    found: dict[str, list[Any]] = defaultdict(list)
    for one in facts:
        found[fact_file.kind_of(one)].append(one)
    found["source"], found["target"] = list(sources), [target] if target else []
    return fact_file.facts_of(found)


def with_more(facts: Facts, more: Facts, chosen: Collection[bytes] = ()) -> Facts:
    """Facts from two places; a newer C1 of a hub takes the place of an older one, unless that is
    the ``chosen`` one.
    """
    newest: dict[bytes, Checkpoint] = {}
    for one in sorted(
        [*facts.sources, *more.sources],
        key=lambda one: (one.checkpoint_id in chosen, one.created_at),
    ):
        newest[one.hub_id] = one
    return Facts(
        exports=[*facts.exports, *more.exports],
        imports=[*facts.imports, *more.imports],
        standings=[*facts.standings, *more.standings],
        repeats=[*facts.repeats, *more.repeats],
        entries=[*facts.entries, *more.entries],
        forks=[*facts.forks, *more.forks],
        routes=[*facts.routes, *more.routes],
        strangers=[*facts.strangers, *more.strangers],
        sources=tuple(sorted(newest.values())),
        target=facts.target or more.target,
    )


def _of_routes(
    settings: Settings, came: Collection[bytes], log: Iterable[Recorded]
) -> Iterator[Recorded]:
    """Without what a bridge with other settings has entered: its streams are not read here.

    A refused carrier of a stream that is in no settings lies here all the same: it is told if it
    ``came`` to this importer or was refused for want of a route, and nothing more became of it.
    """
    mine = {(one.hub_id, one.source) for one in settings.streams.routes}
    refused: dict[bytes, Recorded] = {}
    for one in log:
        hub_id, stream, bundle_id = (
            getattr(one.event, name, None) for name in ("source_hub_id", "stream", "bundle_id")
        )
        if hub_id is None or stream is None or (hub_id, stream) in mine:
            yield one
        elif bundle_id is not None and is_refused(one.event, came):
            refused[bundle_id] = one
        elif bundle_id is not None:
            refused.pop(bundle_id, None)
    yield from refused.values()


def _routes(settings: Settings) -> Iterator[Route]:
    for one in settings.streams.routes:
        yield Route(one.hub_id, one.source, one.target)


def heard(found: Iterable[T], hear: Callable[[T], None]) -> Iterator[T]:
    for one in found:
        hear(one)
        yield one


def _imports(
    source: str, placed: Iterator[Placed | Stranger], listener: Listener
) -> Iterator[Fact]:
    if source != ONLINE_LOG:
        return import_facts(placed)
    # The log tells both: that its own events are here, and what was exported.
    held = list(placed)
    return chain(import_facts(held), online_facts(heard(carried_log(held), listener.online)))
