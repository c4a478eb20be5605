"""A ledger read as a whole: one chain from its first entry to its last, or where it breaks."""

from __future__ import annotations

import fcntl
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from recorder.anchor.ledger_entry import MAX_LINE_BYTES, LedgerEntry, LedgerMark, read_line
from veen.errors import Malformed, Untrusted


@dataclass(frozen=True, slots=True)
class Chain:
    """What a whole ledger was found to be."""

    ledger_id: bytes
    last: LedgerEntry
    end: int
    found: LedgerEntry | None


def mark_of(path: Path) -> Path:
    return path.with_name(f"{path.name}.mark")


def check(path: Path, wanted: int | None = None) -> Chain:
    """Read a whole ledger, or a copy of one, and keep entry ``wanted``; Untrusted names the line
    at which it stops being one chain."""
    with _to_read(path) as file:
        fcntl.flock(file, fcntl.LOCK_SH)
        chain = chain_of(path, file, wanted)
        mark = read_mark(path)
    if mark is None:
        return chain
    if chain.ledger_id != mark.ledger_id or chain.last.index < mark.index:
        raise Untrusted(
            f"{path} ends at entry {chain.last.index} of ledger {chain.ledger_id.hex()}; entry "
            f"{mark.index} of {mark.ledger_id.hex()} was acknowledged"
        )
    return chain


def _to_read(path: Path) -> BinaryIO:
    try:
        return path.open("rb")
    except FileNotFoundError:
        raise Untrusted(
            f"the ledger {path} is missing: without it, or a copy of it, no anchor in it is proven"
        ) from None


def read_mark(path: Path) -> LedgerMark | None:
    try:
        return LedgerMark.decode(mark_of(path).read_bytes())
    except FileNotFoundError:
        return None
    except Malformed as error:
        raise Untrusted(
            f"{mark_of(path)} does not tell how much of the ledger was acknowledged ({error}). "
            "Put back a copy of it, or check the ledger by its anchors and remove the mark"
        ) from error


def chain_of(path: Path, file: BinaryIO, wanted: int | None) -> Chain:
    file.seek(0)
    first = before = found = None
    end = 0
    while line := file.readline(MAX_LINE_BYTES + 1):
        try:
            entry = read_line(line)
            entry.verify_after(before)
        except (Malformed, Untrusted) as error:
            number = 0 if before is None else before.index + 1
            raise Untrusted(f"{path}: the ledger is broken at entry {number}: {error}") from error
        first, before, end = first or entry, entry, end + len(line)
        found = entry if entry.index == wanted else found
    if first is None or before is None:
        raise Untrusted(f"{path}: the ledger is empty")
    return Chain(first.hash, before, end, found)
