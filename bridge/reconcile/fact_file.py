"""Facts as lines of JSON, so that they can be carried, kept and read beside each other.

Each line is an array: the kind of the fact, then its fields in order; bytes are in hex.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any, Final, get_type_hints

from bridge.reconcile.facts import (
    Checkpoint,
    End,
    Entry,
    Export,
    Facts,
    Fork,
    Held,
    Import,
    Repeat,
    Route,
    Standing,
    State,
    Stranger,
)
from veen import canonical_json
from veen.errors import Malformed

Fact = Export | Import | Standing | Repeat | Entry | Fork | Route | Stranger
_KINDS: Final[dict[str, Any]] = {
    "export": Export,
    "import": Import,
    "standing": Standing,
    "repeat": Repeat,
    "entry": Entry,
    "fork": Fork,
    "route": Route,
    "stranger": Stranger,
}
_NAMES: Final[dict[type[Any], str]] = {kind: name for name, kind in _KINDS.items()}
_SOURCE, _TARGET = "source", "target"
_FIELDS: Final = {name: tuple(get_type_hints(kind).values()) for name, kind in _KINDS.items()}


def lines(facts: Facts) -> Iterator[bytes]:
    for found in (
        facts.exports, facts.imports, facts.standings, facts.repeats, facts.entries, facts.forks,
        facts.routes, facts.strangers,
    ):  # fmt: skip
        for one in found:
            yield line(one)
    for source in facts.sources:
        yield _checkpoint_line(_SOURCE, source)
    if facts.target is not None:
        yield _checkpoint_line(_TARGET, facts.target)


def line(fact: Fact) -> bytes:
    return canonical_json.encode([kind_of(fact), *map(_plain, fact)])


def kind_of(fact: Fact) -> str:
    return _NAMES[type(fact)]


def read(raw: Iterable[str | bytes], chosen: Collection[bytes] = ()) -> Facts:
    """The facts that lines tell, or Malformed at the first that tells none; where they bring more
    than one checkpoint of a hub, C1 is the one that is ``chosen`` by its id.
    """
    found: dict[str, list[Any]] = {name: [] for name in (*_KINDS, _SOURCE, _TARGET)}
    for number, one in enumerate(raw, 1):
        try:
            kind, fact = parse(one)
        except Malformed as error:
            raise Malformed(f"line {number}: {error}") from error
        found[kind].append(fact)
    if chosen:
        found[_SOURCE] = _chosen(found[_SOURCE], chosen)
    return facts_of(found)


def facts_of(found: dict[str, list[Any]]) -> Facts:
    """Facts by their kinds put together; a hub has one C1, and there is one C2."""
    sources = sorted(set(found[_SOURCE]))
    targets = sorted(set(found[_TARGET]))
    if len({one.hub_id for one in sources}) < len(sources) or len(targets) > 1:
        raise Malformed("two checkpoints of one hub; take the one to reconcile by")
    return Facts(
        exports=found["export"],
        imports=found["import"],
        standings=found["standing"],
        repeats=found["repeat"],
        entries=found["entry"],
        forks=found["fork"],
        routes=found["route"],
        strangers=found["stranger"],
        sources=tuple(sources),
        target=targets[0] if targets else None,
    )


def _chosen(sources: list[Checkpoint], chosen: Collection[bytes]) -> list[Checkpoint]:
    picked = [one for one in sources if one.checkpoint_id in chosen]
    absent = sorted(set(chosen) - {one.checkpoint_id for one in picked})
    if absent:
        raise Malformed(f"no fact tells of checkpoint {absent[0].hex()}")
    settled = {one.hub_id for one in picked}
    return [*picked, *(one for one in sources if one.hub_id not in settled)]


def parse(raw: str | bytes) -> tuple[str, Any]:
    """The kind of a line, and the fact it tells."""
    try:
        kind, *values = json.loads(raw)
        if kind in (_SOURCE, _TARGET):
            return kind, _checkpoint(values)
        hints = _FIELDS[kind]
        if len(values) != len(hints):
            raise Malformed(f"a fact {kind!r} has {len(hints)} fields")
        return kind, _KINDS[kind](*map(_value, values, hints))
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise Malformed(f"not a fact: {error}") from error


def read_files(paths: Iterable[Path]) -> Facts:
    return read(one for path in paths for one in _file_lines(path))


def _file_lines(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        yield from file


def _plain(value: Any) -> Any:
    if isinstance(value, bytes):
        return value.hex()
    return value.value if isinstance(value, (Held, State)) else value


def _value(value: Any, hint: Any) -> Any:
    if hint is int:
        if type(value) is not int or value < 0:
            raise Malformed(f"{value!r} is no number of a fact")
        return value
    if type(value) is not str:
        raise Malformed(f"{value!r} is no text of a fact")
    return _bytes(value) if hint is bytes else hint(value)


@lru_cache(maxsize=1 << 14)
def _bytes(value: str) -> bytes:
    """The same few names stand in most lines."""
    return bytes.fromhex(value)


def _checkpoint_line(role: str, one: Checkpoint) -> bytes:
    ends = [[end.stream, end.last, end.root.hex()] for end in one.ends]
    return canonical_json.encode([role, *map(_plain, one[:4]), ends])


def _checkpoint(values: list[Any]) -> Checkpoint:
    hub_id, checkpoint_id, created_at, log_root, ends = values
    return Checkpoint(
        bytes.fromhex(hub_id),
        bytes.fromhex(checkpoint_id),
        _value(created_at, int),
        bytes.fromhex(log_root),
        tuple(
            End(_value(name, str), _value(last, int), bytes.fromhex(root))
            for name, last, root in ends
        ),
    )
