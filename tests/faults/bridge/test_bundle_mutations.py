"""Thousands of forgeries that keep the form of a bundle: none is accepted, none is a crash."""

from __future__ import annotations

import itertools
import random
import tracemalloc
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import fields, replace
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest

from bridge.bundle import BundleEvent, BundleLimits, Header, survey
from bridge.errors import CarrierRefused
from bridge.verify import verify_bundle
from support.bridge import bridge_world
from support.long_form import LONG
from veen.errors import Malformed
from veen.proofs import RangeProof

Verdict = Callable[[bytes], str]
COUNT = 100_000 if LONG else 2_000
MIB = 1 << 20


class Mutator:
    """Changes at the level of parts, fields and bytes; most of them with the right bundle_id.

    What a bundle tells beside its events, or does not, is the exporter's to choose: metadata and
    keys are changed here but never left out, since the result would be another valid bundle.
    """

    def __init__(self, raw: bytes, other: bytes, seed: int) -> None:
        self._world, self._raw = bridge_world, raw
        self._parts, self._other = bridge_world.parts(raw), bridge_world.parts(other)
        self._random = random.Random(seed)

    def next(self) -> bytes:
        header, events, proof = self._parts
        events = list(events)
        for _ in range(self._random.choice((1, 1, 1, 2, 3))):
            change = self._random.choice(
                (self._header, self._order, self._event, self._event_bytes, self._proof, self._mix)
            )
            header, events, proof = change(header, events, proof)
        count = len(events) if self._random.random() < 0.95 else self._random.getrandbits(32)
        try:
            result: bytes = self._world.reseal(header, events, proof, count)
        except Malformed:
            # Fields that do not go together have no encoding; their bytes are tried instead.
            result = self._flip(self._raw)
        return result if self._random.random() < 0.9 else self._flip(result)

    def _flip(self, raw: bytes) -> bytes:
        if not raw:
            return raw
        at = self._random.randrange(len(raw))
        change = self._random.choice(("flip", "cut", "insert", "double"))
        some = self._random.randbytes(self._random.choice((1, 1, 2, 9)))
        if change == "flip":
            return raw[:at] + bytes([raw[at] ^ self._random.randrange(1, 256)]) + raw[at + 1 :]
        if change == "cut":
            return raw[:at] + raw[at + len(some) :]
        return raw[:at] + (some if change == "insert" else raw[at : at + 9]) + raw[at:]

    def _header(self, header: Header, events: list[bytes], proof: bytes) -> Any:
        name = self._random.choice([field.name for field in fields(header)][2:10])
        value = getattr(header, name)
        if isinstance(value, int):
            value = max(0, value + self._random.choice((-1, 1, 1 << 40)))
        elif isinstance(value, bytes):
            value = self._random.randbytes(32)
        else:
            value += self._random.choice(("", "x", "\x00", "\x1b[31m"))
        return replace(header, **{name: value}), events, proof

    def _order(self, header: Header, events: list[bytes], proof: bytes) -> Any:
        at, to = (self._random.randrange(len(events)) for _ in range(2)) if events else (0, 0)
        change = self._random.choice(("swap", "drop", "double", "move"))
        if not events:
            return header, events, proof
        if change == "swap":
            events[at], events[to] = events[to], events[at]
        elif change == "drop":
            del events[at]
        elif change == "double":
            events.insert(to, events[at])
        else:
            events.insert(to, events.pop(at))
        return header, events, proof

    def _event(self, header: Header, events: list[bytes], proof: bytes) -> Any:
        at, to = (self._random.randrange(len(events)) for _ in range(2)) if events else (0, 0)
        try:
            mine, theirs = BundleEvent.decode(events[at]), BundleEvent.decode(events[to])
        except (Malformed, IndexError):
            return header, events, proof
        name = self._random.choice(("payload", "metadata", "receipt", "body_key"))
        events[at] = replace(mine, **{name: getattr(theirs, name)}).encode()
        return header, events, proof

    def _event_bytes(self, header: Header, events: list[bytes], proof: bytes) -> Any:
        if events:
            at = self._random.randrange(len(events))
            events[at] = self._flip(events[at])
        return header, events, proof

    def _proof(self, header: Header, events: list[bytes], proof: bytes) -> Any:
        try:
            range_proof = RangeProof.decode(proof)
        except Malformed:
            return header, events, self._flip(proof)
        name = self._random.choice(("peaks_before", "subtrees_after"))
        hashes = list(getattr(range_proof, name))
        change = self._random.choice(("drop", "add", "swap", "bytes"))
        if change == "drop" and hashes:
            hashes.pop(self._random.randrange(len(hashes)))
        elif change == "add":
            hashes.insert(0, self._random.randbytes(32))
        elif change == "swap":
            hashes.reverse()
        else:
            return header, events, self._flip(proof)
        changed: dict[str, Any] = {name: tuple(hashes)}
        return header, events, replace(range_proof, **changed).encode()

    def _mix(self, header: Header, events: list[bytes], proof: bytes) -> Any:
        mine: list[Any] = [header, events, proof]
        theirs: list[Any] = list(self._other)
        at = self._random.randrange(3)
        mine[at] = list(theirs[at]) if at == 1 else theirs[at]
        return tuple(mine)


@contextmanager
def at_most(most: int) -> Iterator[None]:
    """Python's memory must not grow by more than this."""
    tracemalloc.start()
    try:
        yield
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < most


@pytest.fixture(scope="module")
def genuine(grown_world: Any) -> tuple[bytes, bytes]:
    return grown_world.bundle(3, 6), bridge_world.World(client=bridge_world.EXPORTER).grow(
        9
    ).bundle(3, 6)


@pytest.fixture(scope="module")
def forgeries(genuine: tuple[bytes, bytes]) -> Iterator[bytes]:
    mutator = Mutator(*genuine, seed=7)
    candidates = (mutator.next() for _ in itertools.count())
    return (raw for raw in candidates if raw not in genuine)


def test_no_forgery_is_accepted(forgeries: Iterator[bytes], bundle_verdict: Verdict) -> None:
    counter = Counter(bundle_verdict(raw) for raw in itertools.islice(forgeries, COUNT))
    assert "valid" not in counter
    # Each kind of check had its share of the work.
    assert len(counter) >= 12


def test_memory_stays_bounded_whatever_the_bytes_announce(forgeries: Iterator[bytes]) -> None:
    bombs = [b"\x83" + bytes([head]) + b"\xff" * 8 for head in (0x5B, 0x7B, 0x9B, 0xBB, 0xDB)]
    with at_most(8 * MIB):
        for raw in (*bombs, *itertools.islice(forgeries, 200)):
            with pytest.raises(CarrierRefused):
                verify_bundle(BytesIO(raw), bridge_world.TRUST, None)


def test_a_large_bundle_is_verified_in_little_memory(tmp_path: Path) -> None:
    world = bridge_world.World(body_bytes=200_000).grow(150)
    path = tmp_path / "bundle"
    path.write_bytes(world.bundle(1, 150))
    assert path.stat().st_size > 28 * MIB
    with path.open("rb") as file, at_most(10 * MIB):
        verify_bundle(file, bridge_world.TRUST, None)


def test_an_announced_count_allocates_nothing(grown_world: Any) -> None:
    header, events, proof = bridge_world.parts(grown_world.bundle(3, 6))
    wide = replace(header, export_seq_to=header.export_seq_from + (1 << 25))
    raw = bridge_world.reseal(wide, events, proof, (1 << 25) + 1)
    with at_most(8 * MIB), pytest.raises(CarrierRefused):
        survey(BytesIO(raw), BundleLimits())
