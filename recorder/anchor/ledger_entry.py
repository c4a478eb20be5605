"""The lines of a ledger: each holds a root and the hash of the line before it (ANCHOR0.1)."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import Final

from veen import canonical_json
from veen.digest import ht, u64be
from veen.errors import Malformed, Untrusted
from veen.schema import Bytes32, Version
from veen.wire import WireMap

KIND: Final = "file"
MAX_NONCE_BYTES: Final = 64
MAX_LINE_BYTES: Final = 1_024
_NOTHING: Final = bytes(32)
_BEGINNING: Final = b'{"epoch":0,"hash":"'


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerEntry(WireMap):
    """Entry 0 holds no root: its nonce is random, so that its hash is a name for the ledger."""

    ver: Version = 1
    index: int
    previous: Bytes32
    root: Bytes32
    epoch: int
    ts: int
    nonce: bytes
    hash: Bytes32 = _NOTHING

    def rule(self) -> None:
        if len(self.nonce) > MAX_NONCE_BYTES:
            raise Malformed(f"a nonce of {len(self.nonce)} bytes; {MAX_NONCE_BYTES} are allowed")
        if self.index == 0 and (self.previous, self.root) != (_NOTHING, _NOTHING):
            raise Malformed("a first entry that follows another, or holds a root")

    def sealed(self) -> LedgerEntry:
        return replace(self, hash=self._digest())

    def next(self, root: bytes, epoch: int, ts: int, nonce: bytes) -> LedgerEntry:
        following = LedgerEntry(
            index=self.index + 1,
            previous=self.hash,
            root=root,
            epoch=epoch,
            ts=ts,
            nonce=nonce,
        )
        following.encode()  # refuses what no field may hold
        return following.sealed()

    def line(self) -> bytes:
        return canonical_json.encode(self.to_json()) + b"\n"

    def verify_after(self, before: LedgerEntry | None) -> None:
        """Refuse unless this is whole and comes right after ``before``."""
        if self.hash != self._digest():
            raise Untrusted("its hash is not that of what it holds")
        if self.index != (0 if before is None else before.index + 1):
            raise Untrusted(f"it is numbered {self.index}: entries were removed or moved")
        if before is not None and self.previous != before.hash:
            raise Untrusted("it does not follow the entry before it: one of the two was replaced")

    def _digest(self) -> bytes:
        return ht(
            "veen/anchor-ledger",
            self.previous,
            u64be(self.index),
            self.root,
            u64be(self.epoch),
            u64be(self.ts),
            self.nonce,
        )


def first_entry(ts: int, nonce: bytes) -> LedgerEntry:
    entry = LedgerEntry(index=0, previous=_NOTHING, root=_NOTHING, epoch=0, ts=ts, nonce=nonce)
    return entry.sealed()


def may_be_torn(raw: bytes) -> bool:
    """Whether these bytes can be all that is left of the writing of a first entry."""
    is_cut = len(raw) < MAX_LINE_BYTES and raw.startswith(_BEGINNING[: len(raw)])
    return is_cut or not raw.strip(b"\0")


def read_line(line: bytes) -> LedgerEntry:
    """The entry of which ``line``, with its end, is the only form; else Malformed."""
    try:
        found = LedgerEntry.from_json(json.loads(line))
    except Malformed:
        raise
    except (ValueError, RecursionError) as error:
        raise Malformed(f"no JSON: {error}") from error
    if found.line() != line:
        raise Malformed("not written as a ledger writes it")
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerRef(WireMap):
    """The anchor_ref of a ledger: which one, and which entry of it."""

    ver: Version = 1
    kind: str = KIND
    ledger_id: Bytes32
    index: int
    entry_hash: Bytes32

    def rule(self) -> None:
        if self.kind != KIND:
            raise Malformed(f"an anchor_ref of kind {self.kind}, not {KIND}")


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerMark(WireMap):
    """How much of a ledger was acknowledged: its last entry, where that starts and ends."""

    ver: Version = 1
    ledger_id: Bytes32
    index: int
    entry_hash: Bytes32
    start: int
    end: int

    def rule(self) -> None:
        if not self.start < self.end <= self.start + MAX_LINE_BYTES:
            raise Malformed("a mark whose last entry has no size that an entry can have")
