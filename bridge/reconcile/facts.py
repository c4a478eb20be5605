"""The facts of a reconciliation, wherever they were learned, and their encoding (AGB0 4.7).

Facts are ordered and compared by their content alone, so that the same facts, in any order and
however often they were collected, give the same report. In a file each is a line of JSON: an array
of the kind of the fact and its fields in order, with bytes in hex.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from enum import Enum
from functools import lru_cache
from pathlib import Path
from typing import Any, Final, NamedTuple, get_type_hints

from veen.errors import Malformed
from veen.wire import canonical_json


class ImportedFact(Enum):
    """The form in which an event is in an import stream."""

    IMPORTED = "imported"
    EXCLUDED = "excluded"
    """A placeholder, by the zone's policy."""
    UNSEEN = "unseen"
    """Written, but the last event of its bundle is not, so that readers ignore it."""


class BundleState(Enum):
    """The last state of a bundle at the importing side."""

    IMPORTED = "imported"
    PARTIAL = "partial"
    WAITING = "waiting"
    QUARANTINED = "quarantined"


class Export(NamedTuple):
    """An exported bundle; ``root`` is that of the stream at ``last``, if it is known.

    ``described_by`` is ``bundle``, ``audit`` or ``ledger``.
    """

    hub_id: bytes
    stream: str
    first: int
    last: int
    bundle_id: bytes
    described_by: str
    root: bytes = b""


class Import(NamedTuple):
    """Events that are consecutive in an import stream and at their origin.

    Times are hub times at the origin, of the first and the last event. ``root`` is that of the
    source stream at ``last``, from the last receipt, or empty.
    """

    hub_id: bytes
    stream: str
    first: int
    last: int
    bundle_id: bytes
    held: ImportedFact
    target: str
    target_first: int
    time_first: int
    time_last: int
    root: bytes = b""


class BundleFact(NamedTuple):
    """A state of a bundle; the greatest ``at`` counts, except that a success is final.

    A bundle that was refused before it could be read has only its claimed id, and ``first`` is 0.
    ``at`` is 0 for the claims of a refused carrier, which any other fact outweighs.
    """

    bundle_id: bytes
    at: int
    state: BundleState
    hub_id: bytes = b""
    stream: str = ""
    first: int = 0
    last: int = 0


class Repeat(NamedTuple):
    """A bundle that was presented again and not imported again; ``at`` distinguishes repeats."""

    bundle_id: bytes
    at: int


class LedgerFact(NamedTuple):
    """An entry of an exporter's ledger; a heartbeat has an empty ``bundle_id``."""

    bridge_id: bytes
    n: int
    prev: bytes
    entry_hash: bytes
    bundle_id: bytes


class ForkFact(NamedTuple):
    """An audited fork: the hub signed two histories of the stream."""

    hub_id: bytes
    stream: str
    seq: int


class ForeignFact(NamedTuple):
    """A message in an import stream that is no imported event, or in an audit log no entry."""

    target: str
    seq: int


class RouteFact(NamedTuple):
    """A route of the settings."""

    hub_id: bytes
    stream: str
    target: str


class End(NamedTuple):
    """The end of a stream according to a checkpoint."""

    stream: str
    last: int
    root: bytes


class CheckpointFact(NamedTuple):
    hub_id: bytes
    checkpoint_id: bytes
    created_at: int
    log_root: bytes
    ends: tuple[End, ...]

    def end(self, stream: str) -> End | None:
        return next((end for end in self.ends if end.stream == stream), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReconcileFacts:
    """``sources`` are the checkpoints C1, at most one for a hub; ``target`` is C2 (K2)."""

    exports: Iterable[Export] = ()
    imports: Iterable[Import] = ()
    bundle_facts: Iterable[BundleFact] = ()
    repeats: Iterable[Repeat] = ()
    entries: Iterable[LedgerFact] = ()
    forks: Iterable[ForkFact] = ()
    routes: Iterable[RouteFact] = ()
    foreign: Iterable[ForeignFact] = ()
    sources: tuple[CheckpointFact, ...] = ()
    target: CheckpointFact | None = None


Fact = Export | Import | BundleFact | Repeat | LedgerFact | ForkFact | RouteFact | ForeignFact
_KINDS: Final[dict[str, Any]] = {
    "export": Export,
    "import": Import,
    "bundle": BundleFact,
    "repeat": Repeat,
    "entry": LedgerFact,
    "fork": ForkFact,
    "route": RouteFact,
    "foreign": ForeignFact,
}
_EARLIER_NAMES: Final = {"standing": "bundle", "stranger": "foreign"}
"""Names of kinds in files of earlier versions."""
_NAMES: Final[dict[type[Any], str]] = {kind: name for name, kind in _KINDS.items()}
_SOURCE, _TARGET = "source", "target"
KINDS: Final = (*_KINDS, _SOURCE, _TARGET)
_FIELDS: Final = {name: tuple(get_type_hints(kind).values()) for name, kind in _KINDS.items()}
_IRREGULAR: Final = {"bundle": "bundle_facts", "entry": "entries", "foreign": "foreign"}
_LIST_OF_KIND: Final = {kind: _IRREGULAR.get(kind, f"{kind}s") for kind in _KINDS}
"""The field of ReconcileFacts that has the facts of a kind."""


def by_kind(facts: ReconcileFacts) -> Iterator[tuple[str, Iterable[Fact]]]:
    """The facts of each kind, without checkpoints."""
    return ((kind, getattr(facts, name)) for kind, name in _LIST_OF_KIND.items())


def merge(
    facts: ReconcileFacts, more: ReconcileFacts, chosen: Collection[bytes] = ()
) -> ReconcileFacts:
    """Facts from two sources; a newer C1 of a hub replaces an older one, unless that is the
    ``chosen`` checkpoint.
    """
    newest: dict[bytes, CheckpointFact] = {}
    for source in sorted(
        [*facts.sources, *more.sources],
        key=lambda item: (item.checkpoint_id in chosen, item.created_at),
    ):
        newest[source.hub_id] = source
    lists: dict[str, Any] = {
        name: [*getattr(facts, name), *getattr(more, name)] for name in _LIST_OF_KIND.values()
    }
    sources = tuple(sorted(newest.values()))
    return replace(facts, **lists, sources=sources, target=facts.target or more.target)


def fact_lines(facts: ReconcileFacts) -> Iterator[bytes]:
    for _, facts_of_kind in by_kind(facts):
        yield from map(fact_line, facts_of_kind)
    for source in facts.sources:
        yield _checkpoint_line(_SOURCE, source)
    if facts.target is not None:
        yield _checkpoint_line(_TARGET, facts.target)


def fact_line(fact: Fact) -> bytes:
    return canonical_json.encode([kind_of(fact), *map(_plain, fact)])


def kind_of(fact: Fact) -> str:
    return _NAMES[type(fact)]


def read_facts(lines: Iterable[str | bytes], chosen: Collection[bytes] = ()) -> ReconcileFacts:
    """Decode lines, or raise Malformed at the first that is no fact. If they contain several
    checkpoints of a hub, C1 is the checkpoint ``chosen`` by its id.
    """
    parsed: dict[str, list[Any]] = {name: [] for name in KINDS}
    for number, line in enumerate(lines, 1):
        try:
            kind, fact = parse(line)
        except Malformed as error:
            raise Malformed(f"line {number}: {error}") from error
        parsed[kind].append(fact)
    if chosen:
        parsed[_SOURCE] = _chosen(parsed[_SOURCE], chosen)
    return facts_of(parsed)


def facts_of(lists: Mapping[str, list[Any]]) -> ReconcileFacts:
    """Facts from lists by kind; a hub has one C1, and there is one C2."""
    sources = sorted(set(lists[_SOURCE]))
    targets = sorted(set(lists[_TARGET]))
    if len({source.hub_id for source in sources}) < len(sources) or len(targets) > 1:
        raise Malformed(
            "expected one checkpoint of each hub, got two; choose the one to reconcile by"
        )
    return ReconcileFacts(
        **{name: lists[kind] for kind, name in _LIST_OF_KIND.items()},
        sources=tuple(sources),
        target=targets[0] if targets else None,
    )


def _chosen(sources: list[CheckpointFact], chosen: Collection[bytes]) -> list[CheckpointFact]:
    picked = [source for source in sources if source.checkpoint_id in chosen]
    absent = sorted(set(chosen) - {source.checkpoint_id for source in picked})
    if absent:
        raise Malformed(f"no fact of checkpoint {absent[0].hex()}")
    settled = {source.hub_id for source in picked}
    return [*picked, *(source for source in sources if source.hub_id not in settled)]


def parse(raw: str | bytes) -> tuple[str, Any]:
    """The kind of a line, and its fact."""
    try:
        name, *values = json.loads(raw)
        kind = _EARLIER_NAMES.get(name, name)
        if kind in (_SOURCE, _TARGET):
            return kind, _checkpoint(values)
        hints = _FIELDS[kind]
        if len(values) != len(hints):
            raise Malformed(f"a fact {kind!r}: expected {len(hints)} fields, got {len(values)}")
        return kind, _KINDS[kind](*map(_value, values, hints))
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise Malformed(f"expected a fact: {error}") from error


def read_fact_files(paths: Iterable[Path]) -> ReconcileFacts:
    return read_facts(line for path in paths for line in _file_lines(path))


def _file_lines(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        yield from file


def _plain(value: Any) -> Any:
    if isinstance(value, bytes):
        return value.hex()
    return value.value if isinstance(value, (ImportedFact, BundleState)) else value


def _value(value: Any, hint: Any) -> Any:
    if hint is int:
        if type(value) is not int or value < 0:
            raise Malformed(f"expected an integer from 0 on, got {value!r}")
        return value
    if type(value) is not str:
        raise Malformed(f"expected text, got {value!r}")
    return _bytes(value) if hint is bytes else hint(value)


@lru_cache(maxsize=1 << 14)
def _bytes(value: str) -> bytes:
    """Cached, since most lines have the same few ids."""
    return bytes.fromhex(value)


def _checkpoint_line(role: str, fact: CheckpointFact) -> bytes:
    ends = [[end.stream, end.last, end.root.hex()] for end in fact.ends]
    return canonical_json.encode([role, *map(_plain, fact[:4]), ends])


def _checkpoint(values: list[Any]) -> CheckpointFact:
    hub_id, checkpoint_id, created_at, log_root, ends = values
    return CheckpointFact(
        bytes.fromhex(hub_id),
        bytes.fromhex(checkpoint_id),
        _value(created_at, int),
        bytes.fromhex(log_root),
        tuple(
            End(_value(name, str), _value(last, int), bytes.fromhex(root))
            for name, last, root in ends
        ),
    )
