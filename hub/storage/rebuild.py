"""Rebuilding the derived state of a data directory from its log alone (spec 12)."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from hub.storage import identity
from hub.storage.checkpoint_index import merge_late, settle_index
from hub.storage.contradictions import set_aside, set_aside_index, unsigned_places
from hub.storage.datadir import DataDir, DataDirLock
from hub.storage.identity import HubKeys
from hub.storage.index import Index
from hub.storage.label_log import Damaged
from hub.storage.log import HubLog
from hub.storage.relearn import Relearner, acknowledged, disagreements
from hub.storage.replay import Replay, finish_seals
from veen.audit.context import Stock, take_inventory
from veen.hub_identity import HubIdentity
from veen.limits import Limits
from veen.log import layout
from veen.log.entry import StreamRecord, control_label
from veen.log.nodes import NodeFile
from veen.system import durable
from veen.system.environment import Progress

_BLOCK: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class RebuildReport:
    labels: int
    entries: int
    differed: tuple[str, ...]
    """Where the old derived state differed from the log."""
    set_aside: tuple[str, ...] = ()
    """What this hub had signed that contradicts its log, and where it is stored."""

    @property
    def agreed(self) -> bool:
        return not self.differed and not self.set_aside


def rebuild(
    datadir: DataDir, *, limits: Limits, streams: Iterable[StreamRecord], progress: Progress
) -> RebuildReport:
    """Build the new state next to the old and swap at the end; a faulty log changes nothing."""
    lock = DataDirLock(datadir)
    try:
        hub = _hub(datadir)
        _recover_swap(datadir)
        for files in take_inventory(datadir.log_names()).labels.values():
            finish_seals(datadir, files, limits)
        inventory = take_inventory(datadir.log_names())
        _sync_open_chunks(datadir, inventory)
        known = tuple(streams)
        heads, replay = _fill(datadir, hub, limits, known, inventory, progress)
        wrong = replay.contradicted
        differed = _differences(datadir, heads, {stream.stream_id() for stream in known})
        keys = identity.load(datadir) if wrong or unsigned_places(datadir) else None
        moved = [set_aside_index(datadir, label) for label in replay.damaged_indexes]
        moved += set_aside(datadir, wrong, hub.hub_id)
        _settle_indexes(datadir, heads)
        _swap(datadir)
        if keys is not None:
            _sign_again(datadir, keys, limits, known)
    finally:
        lock.release()
    return RebuildReport(len(heads), sum(heads.values()), tuple(differed), tuple(moved))


def _sign_again(
    datadir: DataDir, keys: HubKeys, limits: Limits, streams: tuple[StreamRecord, ...]
) -> None:
    """Sign new checkpoints where contradicting checkpoints were set aside."""
    log = HubLog(datadir, keys, limits, streams)
    try:
        for place in unsigned_places(datadir):
            label_log = log.label(place.label)
            if label_log is not None:
                log.checkpoint(label_log, place.upto_seq, label_log.last_ts)
    finally:
        log.close()


def _hub(datadir: DataDir) -> HubIdentity:
    try:
        return identity.read_identity(datadir)
    except FileNotFoundError as error:
        raise Damaged(f"{error.filename} is missing: restore it; nothing was rebuilt") from error


def _fill(
    datadir: DataDir,
    hub: HubIdentity,
    limits: Limits,
    streams: tuple[StreamRecord, ...],
    inventory: Stock,
    progress: Progress,
) -> tuple[dict[bytes, int], Replay]:
    """Build the new state; the entries per label, and what was found wrong on the way."""
    fresh = DataDir(datadir.root / "derived.new")
    shutil.rmtree(fresh.root, ignore_errors=True)
    durable.make_directory(fresh.derived)
    index = Index(fresh.index, writable=True)
    index.create(hub.hub_id)
    relearner = Relearner(index, hub.hub_id, limits, streams)
    replay = Replay(datadir, hub, limits, relearner)
    control, heads = control_label(hub.hub_id), {}
    sizes = _chunk_bytes(datadir, inventory)
    done, total = 0, sum(sizes.values())
    for label in sorted(inventory.labels, key=lambda item: (item != control, item)):
        progress(done, total)
        with NodeFile.for_writing(fresh.nodes(label)) as nodes:
            heads[label] = replay.run(inventory.labels[label], nodes)
            nodes.sync()
        done += sizes[label]
    for use in relearner.fold_buckets():
        raise Damaged(f"entry {use.seq} exceeds the rate of its capability: run `veen hub verify`")
    relearner.close()
    index.close()
    progress(done, total)
    return heads, replay


def _settle_indexes(datadir: DataDir, labels: Iterable[bytes]) -> None:
    """Merge the late lines of the checkpoint indexes, and note how far each is complete."""
    index = Index(DataDir(datadir.root / "derived.new").index, writable=True)
    try:
        with index.transaction():
            for label in labels:
                merge_late(datadir, label)
                row = index.label(label)
                if row is not None:
                    index.put_index_extent(row.label_no, settle_index(datadir, label))
    finally:
        index.close()


def _differences(datadir: DataDir, heads: dict[bytes, int], configured: set[bytes]) -> list[str]:
    """Compare with the old state; raise Damaged if it has receipts beyond the log."""
    fresh = DataDir(datadir.root / "derived.new")
    for label, head_seq in acknowledged(datadir.index).items():
        if head_seq > heads.get(label, 0):
            raise Damaged(
                f"the log of label {label.hex()} ends at {heads.get(label, 0)}, but this hub has "
                f"given receipts up to {head_seq}. Restore the log from the archive or a backup; "
                "nothing was rebuilt."
            )
    differences = disagreements(fresh.index, datadir.index, (), configured)
    for label in sorted(heads):
        path = datadir.nodes(label)
        if not path.is_file() or not _begins_with(path, fresh.nodes(label)):
            differences.append(f"{path.name} is missing or differs")
    return differences


def _begins_with(path: Path, prefix: Path) -> bool:
    """Whether a file begins with another; the rest has nodes of entries never logged."""
    with path.open("rb") as file, prefix.open("rb") as expected:
        while block := expected.read(_BLOCK):
            if file.read(len(block)) != block:
                return False
    return True


def _recover_swap(datadir: DataDir) -> None:
    """Restore the old state after a crash between the two renames of a swap."""
    old = datadir.root / "derived.old"
    if old.exists() and not datadir.derived.exists():
        durable.rename(old, datadir.derived)


def _swap(datadir: DataDir) -> None:
    fresh, old = DataDir(datadir.root / "derived.new"), datadir.root / "derived.old"
    _sync_file(fresh.index)
    durable.sync_directory(fresh.derived)
    shutil.rmtree(old, ignore_errors=True)
    if datadir.derived.exists():
        durable.rename(datadir.derived, old)
    durable.rename(fresh.derived, datadir.derived)
    durable.sync_directory(fresh.root)
    shutil.rmtree(old, ignore_errors=True)
    shutil.rmtree(fresh.root)


def _chunk_bytes(datadir: DataDir, inventory: Stock) -> dict[bytes, int]:
    return {
        label: sum(
            datadir.file(name).stat().st_size
            for name in (*map(layout.chunk, files.chunks), *map(layout.open_chunk, files.opened))
        )
        for label, files in inventory.labels.items()
    }


def _sync_open_chunks(datadir: DataDir, inventory: Stock) -> None:
    """Sync open chunks: their entries will be acknowledged, and may not be synced yet."""
    for files in inventory.labels.values():
        for opened in files.opened:
            _sync_file(datadir.file(layout.open_chunk(opened)))


def _sync_file(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
