"""Tombstones: signed by the hub while its key is valid, and for one chunk alone (spec 3.4.1)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from veen.crypto import SigningKey
from veen.errors import Malformed, Untrusted
from veen.hub_identity import new_identity
from veen.log.chunk import Tombstone
from veen.wire import cbor

HUB, NEXT, THIEF = (SigningKey(name.ljust(32, b".")) for name in (b"hub", b"next", b"thief"))
IDENTITY = new_identity(HUB.public, 100, "pinned").rotated(HUB, NEXT.public, 200, 10)


def a_tombstone(key: SigningKey = HUB, **changes: Any) -> Tombstone:
    plain = Tombstone(
        label=b"l" * 32, start_seq=1, end_seq=9, chunk_bytes=5, chunk_sha256=b"c" * 32,
        summary_sha256=b"s" * 32, leaves_sha256=b"f" * 32, pruned_at=150, moved_to="archive",
    )  # fmt: skip
    return replace(plain, **changes).signed(key)


def test_a_tombstone_verifies_after_it_travelled() -> None:
    Tombstone.decode(a_tombstone().encode()).verify(IDENTITY)


@pytest.mark.parametrize(
    "change",
    [
        {"label": b"m" * 32},
        {"start_seq": 2},
        {"end_seq": 10},
        {"chunk_bytes": 6},
        {"chunk_sha256": b"x" * 32},
        {"summary_sha256": b"x" * 32},
        {"leaves_sha256": b"x" * 32},
        {"pruned_at": 151},
        {"moved_to": None},
        {"moved_to": "elsewhere"},
        {"hub_sig": bytes(64)},
    ],
    ids=str,
)
def test_refuses_a_change_of_any_field(change: dict[str, Any]) -> None:
    with pytest.raises(Untrusted):
        replace(a_tombstone(), **change).verify(IDENTITY)


@pytest.mark.parametrize(
    ("key", "pruned_at", "holds"),
    [
        (HUB, 99, False),
        (HUB, 100, True),
        (HUB, 210, True),
        (HUB, 211, False),
        (NEXT, 199, False),
        (NEXT, 200, True),
        (THIEF, 150, False),
    ],
)
def test_holds_while_its_key_is_valid(key: SigningKey, pruned_at: int, holds: bool) -> None:
    tombstone = a_tombstone(key, pruned_at=pruned_at)
    if holds:
        tombstone.verify(IDENTITY)
    else:
        with pytest.raises(Untrusted):
            tombstone.verify(IDENTITY)


@pytest.mark.parametrize(("start", "end"), [(0, 1), (2, 1), (0, 0)])
def test_refuses_a_run_of_no_entries(start: int, end: int) -> None:
    plain = a_tombstone().plain()
    with pytest.raises(Malformed):
        Tombstone.decode(cbor.encode({**plain, 3: start, 4: end}))
