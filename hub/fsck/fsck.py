"""fsck of a data directory: the audit of its log, its derived state and its private keys.

Chunks are audited in this process or in several others.
"""

from __future__ import annotations

import tempfile
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Final

from hub.fsck.derived import DerivedCheck, node_hint
from hub.storage.contradictions import stored_checkpoints
from hub.storage.datadir import DataDir, DataDirLock
from hub.storage.log_scan import Logged
from hub.storage.relearn import acknowledged
from veen.audit.context import (
    ChunkFindings,
    Context,
    Depth,
    FindingKind,
    Task,
    begin,
    take_inventory,
)
from veen.audit.engine import AuditedLog, AuditPool, audit_log, audit_task
from veen.audit.report import AuditFault, AuditReport
from veen.audit.trust import TrustCheck
from veen.crypto import SigningKey
from veen.errors import VeenError
from veen.hub_identity import HubIdentity
from veen.label import Profile
from veen.limits import Limits
from veen.log import layout
from veen.log.entry import FramedEntry, StreamRecord
from veen.system.environment import Progress, ProgressCounter

_AHEAD: Final = 2
"""The number of queued chunks per process: none is idle, and memory stays bounded."""
Examined = tuple[ChunkFindings, list[Logged]]


def check_private_keys(datadir: DataDir, hub: HubIdentity, check: TrustCheck, hub_ts: int) -> None:
    """Check the private keys of a hub against its identity; ``hub_ts`` is the log's latest."""
    expected = {f"hub-{key.key_id.hex()}.key": key for key in hub.hub_keys}
    for path in sorted(datadir.keys.iterdir()):
        name = f"keys/{path.name}"
        if path.name not in expected:
            check.notes.append(f"{name}: not a key of this hub")
        elif not _is_key(path.read_bytes(), expected[path.name].hub_pk):
            check.faults.append(
                AuditFault(name, 0, None, "is not the private key that its name says", "KEY")
            )
        elif expected[path.name].is_retired(hub_ts):
            what = "the seed of a key that has retired; the hub deletes it when it runs"
            check.notes.append(f"{name}: {what}")
    name = f"hub-{hub.current.key_id.hex()}.key"
    if not (datadir.keys / name).exists():
        what = "the current private key is missing; the hub cannot sign without it"
        check.notes.append(f"keys/{name}: {what}")


def _is_key(seed: bytes, public: bytes) -> bool:
    return len(seed) == 32 and SigningKey(seed).public == public


def read_file(datadir: DataDir, name: str) -> bytes | None:
    try:
        return datadir.file(name).read_bytes()
    except FileNotFoundError:
        return None


def examine(datadir: DataDir, context: Context, task: Task) -> Examined:
    """Audit a chunk; its findings, and what derived state needs of its entries."""
    entries: list[Logged] = []

    def see(framed: FramedEntry, at: int) -> None:
        entries.append(Logged.of(framed, at))

    hint = partial(node_hint, datadir.nodes(task.label))
    findings = audit_task(task, partial(read_file, datadir), context, see=see, hint=hint)
    return findings, entries


@dataclass(slots=True)
class FsckRunner:
    """Audits chunks, and holds the entries of each until its findings are final."""

    datadir: DataDir
    workers: int
    _entries: dict[str, list[Logged]] = field(default_factory=dict)

    def run(self, tasks: Iterable[Task], context: Context) -> Iterator[ChunkFindings]:
        if self.workers == 1:
            yield from (self.again(task, context) for task in tasks)
            return
        for examined in self._in_processes(tasks, context):
            yield self._hold(examined)

    def again(self, task: Task, context: Context) -> ChunkFindings:
        return self._hold(examine(self.datadir, context, task))

    def entries_of(self, findings: ChunkFindings) -> list[Logged]:
        return self._entries.pop(findings.task.file)

    def _hold(self, examined: Examined) -> ChunkFindings:
        findings, entries = examined
        self._entries[findings.task.file] = entries
        return findings

    def _in_processes(self, tasks: Iterable[Task], context: Context) -> Iterator[Examined]:
        """Audit in worker processes; findings come in the order of the tasks."""
        waiting: deque[Future[Examined]] = deque()
        with ProcessPoolExecutor(
            self.workers, get_context("spawn"), _set_up, (self.datadir, context)
        ) as pool:
            for task in tasks:
                waiting.append(pool.submit(_examine, task))
                if len(waiting) >= self.workers * _AHEAD:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()


_DATADIR: DataDir
_CONTEXT: Context


def _set_up(datadir: DataDir, context: Context) -> None:
    """Set up a worker process."""
    global _DATADIR, _CONTEXT
    _DATADIR, _CONTEXT = datadir, context


def _examine(task: Task) -> Examined:
    return examine(_DATADIR, _CONTEXT, task)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Options:
    limits: Limits
    profiles: tuple[Profile, ...]
    streams: tuple[StreamRecord, ...]
    progress: Progress
    workers: int
    depth: Depth


def verify(
    datadir: DataDir,
    *,
    limits: Limits,
    profiles: Iterable[Profile],
    streams: Iterable[StreamRecord],
    progress: Progress,
    workers: int = 1,
    depth: Depth = Depth.FULL,
) -> AuditReport:
    """Check everything and report every fault; with Depth.HASHES, all but the two signatures of
    each entry. A directory that a hub holds is refused."""
    options = _Options(
        limits=limits, profiles=tuple(profiles), streams=tuple(streams),
        progress=progress, workers=workers, depth=depth,
    )  # fmt: skip
    return _verify(datadir, options)


def _verify(datadir: DataDir, options: _Options) -> AuditReport:
    if not datadir.log.is_dir():
        raise VeenError(f"{datadir.root} is not a data directory: it has no log")
    lock = DataDirLock(datadir)
    try:
        with tempfile.TemporaryDirectory(prefix="veen-verify-") as scratch:
            return _audit(datadir, options, Path(scratch) / "index.sqlite")
    finally:
        lock.release()


def _audit(datadir: DataDir, options: _Options, fresh: Path) -> AuditReport:
    read, trust = partial(read_file, datadir), TrustCheck()
    hub = trust.read_hub(read)
    for name, place in stored_checkpoints(datadir):
        what = (
            f"contradicts the log at {place.upto_seq}, and this hub signed it; stored as evidence"
        )
        trust.notes.append(f"evidence/{name}: {what}")
    inventory = take_inventory(datadir.log_names() + datadir.recorder_names())
    context = begin(
        hub=hub,
        limits=options.limits,
        profiles=options.profiles,
        streams=options.streams,
        depth=options.depth,
    )
    derived = DerivedCheck(datadir, inventory, hub.hub_id, options.limits, options.streams, fresh)
    runner = FsckRunner(datadir, options.workers)
    count = ProgressCounter(_chunk_bytes(datadir), options.progress)
    count.begin()
    times = [0]

    def observe(findings: ChunkFindings) -> None:
        derived.take(findings, runner.entries_of(findings))
        if findings.task.kind in (FindingKind.SEALED, FindingKind.OPEN):
            count.add(findings.size)
        times.append(findings.last_ts)

    log = AuditedLog(inventory=inventory, read=read, acknowledged=acknowledged(datadir.index))
    audited = audit_log(log, context, AuditPool(runner.run, runner.again), observe)
    stale = derived.finish(audited.faulty())
    check_private_keys(datadir, hub, trust, max(times))
    return audited.report(trust.faults, trust.notes, stale)


def _chunk_bytes(datadir: DataDir) -> int:
    return sum(
        path.stat().st_size
        for path in datadir.log.iterdir()
        if layout.parse_chunk(f"log/{path.name}") or layout.parse_open_chunk(f"log/{path.name}")
    )
