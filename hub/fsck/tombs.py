"""Pruned chunks: the tombstone of each, its summary and its records, against one another."""

from __future__ import annotations

from dataclasses import dataclass

from hub.fsck.check import Check
from hub.storage import pruned
from hub.storage.logged import Logged
from veen import layout
from veen.chunk import ChunkSummary
from veen.digest import h
from veen.errors import Malformed, Untrusted
from veen.layout import ChunkName
from veen.tombstone import Tombstone


@dataclass(frozen=True, slots=True)
class Tomb:
    """A pruned chunk of which everything that must remain is there."""

    tombstone: Tombstone
    entries: list[Logged]
    summary: ChunkSummary


def read_tomb(check: Check, name: ChunkName) -> Tomb | None:
    """What is left of a pruned chunk, or None when a fault was reported."""
    found = _tombstone(check, name)
    if found is None:
        return None
    leaves = _vouched(check, pruned.leaves(name), found.leaves_sha256)
    summary = _vouched(check, layout.summary(name), found.summary_sha256)
    if leaves is None or summary is None:
        return None
    where = f"moved to {found.moved_to}" if found.moved_to else "not kept elsewhere"
    check.findings.note(f"{layout.chunk(name)}: pruned at {found.pruned_at}, {where}")
    return Tomb(found, pruned.unpack(leaves, name), ChunkSummary.decode(summary))


def _tombstone(check: Check, name: ChunkName) -> Tombstone | None:
    file = pruned.tombstone(name)
    try:
        found = Tombstone.decode(check.read(file) or b"")
        found.verify(check.hub)
    except (Malformed, Untrusted) as error:
        check.findings.fault(file, 0, name.start_seq, str(error), "TOMBSTONE")
        return None
    if ChunkName(found.label, found.start_seq, found.end_seq) != name:
        check.findings.fault(file, 0, name.start_seq, "is not what its name says", "TOMBSTONE")
        return None
    return found


def _vouched(check: Check, file: str, due: bytes) -> bytes | None:
    raw = check.read(file)
    if raw is not None and h(raw) == due:
        return raw
    what = "the file is missing" if raw is None else "is not what the tombstone says"
    check.findings.fault(file, 0, None, what, "MISSING" if raw is None else "TOMBSTONE")
    return None
