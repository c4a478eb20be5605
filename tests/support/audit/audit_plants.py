"""Faults to plant into a log, each with the file, the byte and the code that it is told by."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

from support.audit import audit_files
from support.audit.audit_files import Files
from support.audit.audit_history import HUB
from support.audit.audit_pool import audited
from veen.checkpoint import Checkpoint
from veen.crypto import SigningKey
from veen.log import layout
from veen.log.chunk import ChunkSummary, PeakSnapshot
from veen.log.layout import ChunkName

Finding = tuple[str, int, str]
STRANGER = SigningKey(bytes(32))


class Place(NamedTuple):
    """Where a fault is planted: a sealed chunk, the size of its entries, and its hub."""

    name: ChunkName
    size: int
    hub: SigningKey

    @property
    def file(self) -> str:
        return layout.chunk(self.name)


Plant = Callable[[Files, Place], list[Finding]]


def edit(files: Files, place: Place, change: Callable[[list[Any]], object]) -> None:
    files[place.file] = audit_files.forged(files[place.file], change)


def flip(files: Files, place: Place) -> list[Finding]:
    raw, at = bytearray(files[place.file]), 3 * place.size + 300
    raw[at] ^= 4
    files[place.file] = bytes(raw)
    return [(place.file, 3 * place.size, "FRAME")]


def drop(files: Files, place: Place) -> list[Finding]:
    edit(files, place, lambda entries: entries.pop(3))
    return [(place.file, 3 * place.size, "MISSING")]


def drop_first(files: Files, place: Place) -> list[Finding]:
    edit(files, place, lambda entries: entries.pop(0))
    return [(place.file, 0, "MISSING")]


def drop_last(files: Files, place: Place) -> list[Finding]:
    edit(files, place, lambda entries: entries.pop())
    return [(place.file, 7 * place.size, "NAME")]


def swap(files: Files, place: Place) -> list[Finding]:
    def change(entries: list[Any]) -> None:
        entries[2], entries[3] = entries[3], entries[2]

    edit(files, place, change)
    return [(place.file, 2 * place.size, "MISSING"), (place.file, 3 * place.size, "ORDER")]


def duplicate(files: Files, place: Place) -> list[Finding]:
    edit(files, place, lambda entries: entries.insert(3, entries[3]))
    return [(place.file, 4 * place.size, "ORDER")]


def wrong_root(files: Files, place: Place) -> list[Finding]:
    def change(entries: list[Any]) -> None:
        forged = replace(entries[5].receipt, mmr_root=bytes(32))
        entries[5].receipt = forged.signed(place.hub)

    edit(files, place, change)
    return [(place.file, 5 * place.size, "I3")]


def bad_receipt_signature(files: Files, place: Place) -> list[Finding]:
    def change(entries: list[Any]) -> None:
        entries[0].receipt = entries[0].receipt.signed(STRANGER)

    edit(files, place, change)
    return [(place.file, 0, "SIG")]


def bad_message_signature(files: Files, place: Place) -> list[Finding]:
    def change(entries: list[Any]) -> None:
        entries[7].msg = entries[7].msg.signed(STRANGER)

    edit(files, place, change)
    return [(place.file, 7 * place.size, "SIG")]


def missing_chunk(files: Files, place: Place) -> list[Finding]:
    del files[place.file]
    return [(place.file, 0, "MISSING")]


def forged_summary(files: Files, place: Place) -> list[Finding]:
    name = layout.summary(place.name)
    raw = files[name]
    forged = replace(ChunkSummary.decode(raw), entry_hashes_root=bytes(32))
    files[name] = forged.encode()
    return [(name, len(raw) - 32, "SUMMARY")]


def forged_peaks(files: Files, place: Place) -> list[Finding]:
    name = layout.peaks(place.name.label, place.name.end_seq)
    snapshot = PeakSnapshot.decode(files[name])
    forged = replace(snapshot, peaks=(bytes(32), *snapshot.peaks[1:]))
    files[name] = forged.encode()
    return [(name, files[name].index(bytes(32)), "PEAKS")]


def forged_checkpoint(files: Files, place: Place) -> list[Finding]:
    name = layout.checkpoint(place.name.label, place.name.end_seq)
    forged = replace(Checkpoint.decode(files[name]), mmr_root=bytes(32))
    files[name] = forged.signed(place.hub).encode()
    return [(name, files[name].index(bytes(32)), "CHECKPOINT")]


PLANTS: list[Plant] = [
    flip, drop, drop_first, drop_last, swap, duplicate, wrong_root, bad_receipt_signature,
    bad_message_signature, missing_chunk, forged_summary, forged_peaks, forged_checkpoint,
]  # fmt: skip


def places(files: Files) -> list[Place]:
    """Two chunks one after the other in one label, and one of another label."""
    names = sorted(chunk for name in files if (chunk := layout.parse_chunk(name)))
    first = next(name for name in names if name._replace(start_seq=9, end_seq=16) in names)
    other = next(name for name in names if name.label != first.label)
    chosen = [first, first._replace(start_seq=9, end_seq=16), other]
    return [Place(item, len(files[layout.chunk(item)]) // 8, HUB) for item in chosen]


def findings(files: Files, **options: Any) -> list[Finding]:
    return [(fault.file, fault.offset, fault.code) for fault in audited(files, **options).faults]
