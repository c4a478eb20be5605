"""The audit of a chunk that retention took away, from its tombstone, leaves and summary (3.4.1)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

from veen import layout
from veen.audit import leaves
from veen.audit.artefacts import Artefacts
from veen.audit.chunk_audit import beside, guess_start
from veen.audit.climb import read_snapshot
from veen.audit.context import Context
from veen.audit.findings import ChunkFindings, Read, Start, Task, Use
from veen.audit.leaves import LeafRecord
from veen.audit.report import Fault
from veen.chunk import ChunkSummary
from veen.digest import h
from veen.errors import Malformed, Untrusted
from veen.invariants import ClientCursor
from veen.layout import ChunkName
from veen.mmr import Peaks
from veen.tombstone import Tombstone


@dataclass(frozen=True, slots=True)
class Tomb:
    """A pruned chunk of which everything that must remain is there."""

    tombstone: Tombstone
    records: Sequence[LeafRecord]
    summary: ChunkSummary


def audit_tomb(task: Task, name: ChunkName, read: Read, context: Context) -> ChunkFindings:
    faults: list[Fault] = []
    tomb = _read_tomb(name, read, context, faults)
    first_ts = tomb.records[0].hub_ts if tomb else None
    start = task.start or guess_start(task, read, context, first_ts)
    artefacts = beside(task, start, read, context)
    peaks = _climb(name, tomb, start, read, artefacts, faults) if tomb else None
    plain = _beside_nothing(task, start, artefacts, faults)
    if tomb is None:
        return replace(plain, excused=name.end_seq)
    found = tomb.tombstone
    where = f"moved to {found.moved_to}" if found.moved_to else "not kept elsewhere"
    cursors = {one.client_id: ClientCursor(one.client_seq, one.prev_ack) for one in tomb.records}
    return replace(
        plain,
        is_confirmed=peaks is not None and peaks.root() == tomb.summary.mmr_root_end,
        first_seq=name.start_seq,
        first_ts=first_ts,
        seen=name.end_seq,
        peaks=peaks,
        last_ts=tomb.records[-1].hub_ts,
        size=found.chunk_bytes,
        notes=(f"{layout.chunk(name)}: pruned at {found.pruned_at}, {where}",),
        lasts=tuple(cursors.items()),
        uses=_uses(tomb.records, context),
    )


def audit_absent(task: Task, read: Read, context: Context) -> ChunkFindings:
    """A label without any chunk: only what stands beside them can be looked at."""
    start = task.start or guess_start(task, read, context, None)
    return _beside_nothing(task, start, beside(task, start, read, context), [])


def _beside_nothing(
    task: Task, start: Start, artefacts: Artefacts, faults: list[Fault]
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


def _uses(records: Sequence[LeafRecord], context: Context) -> tuple[Use, ...]:
    used = Counter((one.auth_ref, one.hub_ts) for one in records if one.auth_ref in context.rated)
    return tuple(Use(ref, hub_ts, times) for (ref, hub_ts), times in used.items() if ref)


def _climb(
    name: ChunkName,
    tomb: Tomb,
    start: Start,
    read: Read,
    artefacts: Artefacts,
    faults: list[Fault],
) -> Peaks | None:
    """The peaks at the end, from the leaves; they must have the root of the summary."""
    peaks = start.peaks or read_snapshot(read, name.label, name.start_seq - 1)
    if peaks is None or peaks.size != name.start_seq - 1:
        return None
    passed = []
    for record in tomb.records:
        peaks = peaks.append(record.leaf_hash)
        if peaks.size in artefacts.task.due or peaks.size in artefacts.task.snapshots:
            passed.append((peaks, record.hub_ts))
    if peaks.root() != tomb.summary.mmr_root_end:
        if start.peaks is None:
            return None
        what = "its leaves do not lead to the root of the summary"
        faults.append(Fault(leaves.leaves(name), 0, name.start_seq, what, "I3"))
    for one, hub_ts in passed:
        artefacts.at(one.size, name.start_seq, one, hub_ts)
    return peaks


def _read_tomb(
    name: ChunkName, read: Read, context: Context, faults: list[Fault]
) -> Tomb | None:  # fmt: skip
    """What is left of a pruned chunk, or None when a fault was told."""
    found = _tombstone(name, read, context, faults)
    if found is None:
        return None
    records = _vouched(read, leaves.leaves(name), found.leaves_sha256, faults)
    summary = _vouched(read, layout.summary(name), found.summary_sha256, faults)
    if records is None or summary is None:
        return None
    try:
        return Tomb(found, leaves.unpack(records, name), ChunkSummary.decode(summary))
    except Malformed as error:
        faults.append(Fault(leaves.leaves(name), 0, name.start_seq, str(error), "TOMBSTONE"))
        return None


def _tombstone(
    name: ChunkName, read: Read, context: Context, faults: list[Fault]
) -> Tombstone | None:
    file = leaves.tombstone(name)
    try:
        found = Tombstone.decode(read(file) or b"")
        found.verify(context.hub)
    except (Malformed, Untrusted) as error:
        faults.append(Fault(file, 0, name.start_seq, str(error), "TOMBSTONE"))
        return None
    if ChunkName(found.label, found.start_seq, found.end_seq) != name:
        faults.append(Fault(file, 0, name.start_seq, "is not what its name says", "TOMBSTONE"))
        return None
    return found


def _vouched(read: Read, file: str, due: bytes, faults: list[Fault]) -> bytes | None:
    raw = read(file)
    if raw is not None and h(raw) == due:
        return raw
    what = "the file is missing" if raw is None else "is not what the tombstone says"
    faults.append(Fault(file, 0, None, what, "MISSING" if raw is None else "TOMBSTONE"))
    return None
