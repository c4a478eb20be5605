"""The audit of a pruned chunk from its tombstone, leaves and summary (spec 3.4.1)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

from veen.audit.artefacts import Artefacts
from veen.audit.chunk import chunk_artefacts, guess_start
from veen.audit.context import ChunkFindings, Context, RateUse, Read, Start, Task
from veen.audit.entries import read_snapshot
from veen.audit.report import AuditFault
from veen.digest import h
from veen.errors import Malformed, Untrusted
from veen.invariants import ClientCursor
from veen.log import layout
from veen.log.chunk import ChunkSummary, Tombstone
from veen.log.layout import ChunkName, LeafRecord, leaf_file, tombstone_file, unpack_leaves
from veen.mmr import Peaks
from veen.timestamp import readable_time


@dataclass(frozen=True, slots=True)
class PrunedChunk:
    """A pruned chunk with everything that must remain of it."""

    tombstone: Tombstone
    records: Sequence[LeafRecord]
    summary: ChunkSummary


def audit_tombstone(task: Task, name: ChunkName, read: Read, context: Context) -> ChunkFindings:
    """Audit what is left of a pruned chunk."""
    faults: list[AuditFault] = []
    pruned = _read_pruned(name, read, context, faults)
    first_ts = pruned.records[0].hub_ts if pruned else None
    start = task.start or guess_start(task, read, context, first_ts)
    artefacts = chunk_artefacts(task, start, read, context)
    peaks = _end_peaks(name, pruned, start, read, artefacts, faults) if pruned else None
    plain = _artefact_findings(task, start, artefacts, faults)
    if pruned is None:
        return replace(plain, excused=name.end_seq)
    tombstone = pruned.tombstone
    where = f"moved to {tombstone.moved_to}" if tombstone.moved_to else "no copy elsewhere"
    cursors = {
        record.client_id: ClientCursor(record.client_seq, record.prev_ack)
        for record in pruned.records
    }
    return replace(
        plain,
        is_confirmed=peaks is not None and peaks.root() == pruned.summary.mmr_root_end,
        first_seq=name.start_seq,
        first_ts=first_ts,
        seen=name.end_seq,
        peaks=peaks,
        last_ts=pruned.records[-1].hub_ts,
        size=tombstone.chunk_bytes,
        notes=(f"{layout.chunk(name)}: pruned at {readable_time(tombstone.pruned_at)}, {where}",),
        lasts=tuple(cursors.items()),
        uses=_uses(pruned.records, context),
    )


def audit_absent(task: Task, read: Read, context: Context) -> ChunkFindings:
    """Audit the artefacts of a label without any chunk."""
    start = task.start or guess_start(task, read, context, None)
    return _artefact_findings(task, start, chunk_artefacts(task, start, read, context), [])


def _artefact_findings(
    task: Task, start: Start, artefacts: Artefacts, faults: list[AuditFault]
) -> ChunkFindings:
    artefacts.finish()
    return ChunkFindings(
        task=task,
        start=start,
        seen=start.seen,
        last_ts=start.last_ts,
        checkpoints=artefacts.checkpoints,
        faults=(*faults, *artefacts.faults),
        refs=tuple(artefacts.refs.items()),
        bindings=tuple(artefacts.bindings),
    )


def _uses(records: Sequence[LeafRecord], context: Context) -> tuple[RateUse, ...]:
    used = Counter(
        (record.auth_ref, record.hub_ts) for record in records if record.auth_ref in context.rated
    )
    return tuple(RateUse(ref, hub_ts, times) for (ref, hub_ts), times in used.items() if ref)


def _end_peaks(
    name: ChunkName,
    pruned: PrunedChunk,
    start: Start,
    read: Read,
    artefacts: Artefacts,
    faults: list[AuditFault],
) -> Peaks | None:
    """The peaks at the end, from the leaves, which must lead to the root of the summary."""
    peaks = start.peaks or read_snapshot(read, name.label, name.start_seq - 1)
    if peaks is None or peaks.size != name.start_seq - 1:
        return None
    passed = []
    for record in pruned.records:
        peaks = peaks.append(record.leaf_hash)
        if peaks.size in artefacts.task.due or peaks.size in artefacts.task.snapshots:
            passed.append((peaks, record.hub_ts))
    if peaks.root() != pruned.summary.mmr_root_end:
        if start.peaks is None:
            return None
        what = "its leaves do not give the root of the summary"
        faults.append(AuditFault(leaf_file(name), 0, name.start_seq, what, "I3"))
    for reached, hub_ts in passed:
        artefacts.at(reached.size, name.start_seq, reached, hub_ts)
    return peaks


def _read_pruned(
    name: ChunkName, read: Read, context: Context, faults: list[AuditFault]
) -> PrunedChunk | None:  # fmt: skip
    """What is left of a pruned chunk, or None after recording a fault."""
    tombstone = _tombstone(name, read, context, faults)
    if tombstone is None:
        return None
    records = _read_hashed(read, leaf_file(name), tombstone.leaves_sha256, faults)
    summary = _read_hashed(read, layout.summary(name), tombstone.summary_sha256, faults)
    if records is None or summary is None:
        return None
    try:
        return PrunedChunk(tombstone, unpack_leaves(records, name), ChunkSummary.decode(summary))
    except Malformed as error:
        faults.append(AuditFault(leaf_file(name), 0, name.start_seq, str(error), "TOMBSTONE"))
        return None


def _tombstone(
    name: ChunkName, read: Read, context: Context, faults: list[AuditFault]
) -> Tombstone | None:
    file = tombstone_file(name)
    try:
        tombstone = Tombstone.decode(read(file) or b"")
        tombstone.verify(context.hub)
    except (Malformed, Untrusted) as error:
        faults.append(AuditFault(file, 0, name.start_seq, str(error), "TOMBSTONE"))
        return None
    if ChunkName(tombstone.label, tombstone.start_seq, tombstone.end_seq) != name:
        faults.append(AuditFault(file, 0, name.start_seq, "is not what its name says", "TOMBSTONE"))
        return None
    return tombstone


def _read_hashed(read: Read, file: str, expected: bytes, faults: list[AuditFault]) -> bytes | None:
    raw = read(file)
    if raw is not None and h(raw) == expected:
        return raw
    what = "the file is missing" if raw is None else "does not match the tombstone"
    faults.append(AuditFault(file, 0, None, what, "MISSING" if raw is None else "TOMBSTONE"))
    return None
