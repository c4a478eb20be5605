"""The check of a whole data directory: every byte of the log against what the hub signed."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable
from pathlib import Path

from hub.control import StreamRecord, control_label
from hub.fsck.check import Check, Progress
from hub.fsck.report import Findings, Report
from hub.fsck.trust import check_bindings, read_hub
from hub.fsck.walk import LabelWalk
from hub.storage import identity
from hub.storage.compare import acknowledged, disagreements
from hub.storage.datadir import DataDir, Lock
from hub.storage.index import Index
from hub.storage.inventory import Inventory, take_stock
from hub.storage.relearn import Relearner
from veen import layout
from veen.errors import VeenError
from veen.limits import Limits
from veen.profile import DEFAULT_PROFILE, Profile


def verify(
    datadir: DataDir,
    *,
    limits: Limits,
    profiles: Iterable[Profile],
    streams: Iterable[StreamRecord],
    progress: Progress,
) -> Report:
    """Check everything and report everything. A directory that a hub holds is refused."""
    if not datadir.log.is_dir():
        raise VeenError(f"{datadir.root} is not a data directory: it has no log")
    lock = Lock(datadir)
    try:
        with tempfile.TemporaryDirectory(prefix="veen-verify-") as scratch:
            return _verify(
                datadir, limits, profiles, tuple(streams), progress, Path(scratch) / "index.sqlite"
            )
    finally:
        lock.release()


def _verify(
    datadir: DataDir,
    limits: Limits,
    profiles: Iterable[Profile],
    streams: tuple[StreamRecord, ...],
    progress: Progress,
    fresh: Path,
) -> Report:
    findings = Findings()
    hub = read_hub(datadir, findings)
    index = Index(fresh, writable=True)
    index.create(hub.hub_id)
    known = {one.profile_id(): one for one in (DEFAULT_PROFILE, *profiles)}
    check = Check(
        datadir=datadir,
        limits=limits,
        profiles=known,
        hub=hub,
        findings=findings,
        relearner=Relearner(index, hub.hub_id, limits, streams),
        acknowledged=acknowledged(datadir.index),
        progress=progress,
        bound={(one.label, one.upto_seq) for one in identity.read_bindings(datadir)},
    )
    faulty = _walk(check, take_stock(datadir))
    _check_rates(check)
    check_bindings(check)
    check.relearner.close()
    index.close()
    configured = {one.stream_id() for one in streams}
    for what in disagreements(fresh, datadir.index, faulty, configured):
        findings.stale(what)
    return findings.report()


def _walk(check: Check, stock: Inventory) -> set[bytes]:
    """Walk every label, the control label first; the labels with faults."""
    for name in stock.unknown:
        check.findings.note(f"{name}: not a file of the log")
    control, faulty = control_label(check.hub.hub_id), set()
    for label in check.acknowledged:
        stock.of(label)
    check.total = stock.chunk_bytes
    check.advance(0)
    for files in sorted(stock.labels.values(), key=lambda one: (one.label != control, one.label)):
        before = len(check.findings.faults)
        LabelWalk(check, files).run()
        if len(check.findings.faults) > before:
            faulty.add(files.label)
            check.control_is_whole = check.control_is_whole and files.label != control
    return faulty


def _check_rates(check: Check) -> None:
    """Rates, which span labels, in the order of hub time."""
    index = check.relearner.index
    labels = {row.label_no: row.label for row in index.labels()}
    for use in check.relearner.fold_buckets():
        (row,) = index.entries(use.label_no, use.seq, use.seq)
        chunk = index.chunk_of(use.label_no, use.seq)
        label = labels[use.label_no]
        name = (
            layout.chunk(layout.ChunkName(label, chunk.start_seq, chunk.end_seq))
            if chunk
            else layout.open_chunk(layout.OpenChunkName(label, row.chunk_start))
        )
        check.findings.fault(name, row.at, use.seq, "faster than the capability allows", "I7")
