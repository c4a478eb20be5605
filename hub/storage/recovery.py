"""Opening a data directory after a stop of any kind: the log decides, the index follows.

Each label's open chunk is read from its start; sealed chunks are not. A torn tail is cut, for its
receipts never left the hub; but a log that ends before what this hub has signed is refused.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from hub.storage.datadir import DataDir
from hub.storage.index import ChunkRow, Index, LabelRow
from hub.storage.label_log import (
    Damaged,
    LabelLog,
    LocatedEntry,
    read_checkpoint_index,
    read_peaks,
    read_summary,
    whole_entries,
)
from hub.storage.nodes import ensure_node_files
from veen import mmr
from veen.digest import h
from veen.limits import Limits
from veen.log import layout
from veen.log.chunk import CheckpointRef, ChunkTally
from veen.log.entry import FramedEntry
from veen.log.layout import CheckpointFileName
from veen.log.nodes import NodeFile
from veen.system import durable

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Unindexed:
    """An entry of the open chunk that the index does not hold yet."""

    label_log: LabelLog
    chunk_start: int
    at: int
    framed: FramedEntry


def open_label(
    datadir: DataDir, row: LabelRow, last: ChunkRow | None, limits: Limits, signed: int
) -> tuple[LabelLog, list[Unindexed]]:
    """One label as its files tell it, and what the index has yet to learn.

    ``last`` is its last sealed chunk. The label has unpublished checkpoints up to ``signed``.
    """
    before = row.chunk_start - 1
    label_log = LabelLog(
        datadir=datadir,
        label=row.label,
        label_no=row.label_no,
        stream_id=row.stream_id,
        epoch=row.epoch,
        peaks=read_peaks(datadir, row.label, before),
        tally=ChunkTally.starting_at(row.chunk_start),
        last_ts=row.head_ts,
        nodes=NodeFile.for_writing(datadir.nodes(row.label)),
    )
    listed = read_checkpoint_index(datadir, row.label)
    _refuse_other_peaks(label_log, last, listed)
    ensure_node_files(label_log, limits)
    path = label_log.open_path()
    raw = path.read_bytes() if path.exists() else b""
    unindexed = _replay(label_log, row, raw, limits, listed)
    _refuse_rollback(label_log, row, max(signed, max(listed, default=0)))
    if label_log.tally.size < len(raw):
        _cut_tail(label_log, raw)
    elif unindexed:
        label_log.sync()
    label_log.nodes.close()
    return label_log, unindexed


def _refuse_other_peaks(
    label_log: LabelLog, last: ChunkRow | None, listed: Mapping[int, CheckpointRef]
) -> None:
    """Everything signed from here on grows from these peaks, and repeats the checkpoint there: the
    last chunk must vouch for both."""
    if last is None:
        return
    name = layout.ChunkName(label_log.label, last.start_seq, last.end_seq)
    due = read_summary(label_log.datadir, name).mmr_root_end
    if label_log.peaks.root() != due:
        raise Damaged(
            f"{layout.peaks(label_log.label, last.end_seq)} has root "
            f"{label_log.peaks.root().hex()}, but the chunk that ends there has {due.hex()}: "
            "run `veen hub rebuild`. Nothing was started."
        )
    _refuse_other_checkpoint(label_log, listed, due)


def _replay(
    label_log: LabelLog,
    row: LabelRow,
    raw: bytes,
    limits: Limits,
    listed: Mapping[int, CheckpointRef],
) -> list[Unindexed]:
    start_seq = row.chunk_start
    unindexed, nodes = [], []
    for result in whole_entries(raw, row.label, start_seq, limits):
        framed = result.opened()
        nodes.extend(_advance(label_log, result, framed))
        _refuse_other_checkpoint(label_log, listed, framed.receipt.mmr_root)
        if label_log.head_seq > row.head_seq:
            unindexed.append(Unindexed(label_log, start_seq, result.at, framed))
    label_log.nodes.write_from(start_seq, b"".join(nodes))
    return unindexed


def _advance(label_log: LabelLog, located_entry: LocatedEntry, framed: FramedEntry) -> list[bytes]:
    peaks, completed = mmr.grow(label_log.peaks, framed.receipt.leaf_hash)
    if peaks.root() != framed.receipt.mmr_root:
        raise Damaged(
            f"entry {peaks.size} of {label_log.open_path().name} at byte {located_entry.at} has "
            "another "
            "root than its receipt: run `veen hub verify`"
        )
    label_log.peaks = peaks
    label_log.tally = label_log.tally.plus(
        located_entry.header.whole_size, located_entry.header.entry_hash
    )
    label_log.last_ts = framed.receipt.hub_ts
    return completed


def _refuse_other_checkpoint(
    label_log: LabelLog, listed: Mapping[int, CheckpointRef], root: bytes
) -> None:
    """A checkpoint of this hub and the receipt at its place must say the same."""
    ref = listed.get(label_log.head_seq)
    if ref is not None and ref.mmr_root != root:
        raise Damaged(
            f"{layout.checkpoint(label_log.label, label_log.head_seq)} has root "
            f"{ref.mmr_root.hex()}, but the receipt at {label_log.head_seq} has {root.hex()}: "
            "run `veen hub rebuild`, which sets such a checkpoint aside. Nothing was started."
        )


def _cut_tail(label_log: LabelLog, raw: bytes) -> None:
    """Cut what follows the last whole entry, keeping a copy for whoever asks."""
    path, keep = label_log.open_path(), label_log.tally.size
    tail = raw[keep:]
    name = f"tail-{label_log.label.hex()}-{label_log.head_seq + 1}-{h(tail)[:8].hex()}.bin"
    durable.write_once(label_log.datadir.evidence / name, tail)
    with path.open("r+b") as file:
        file.truncate(keep)
        durable.sync(file.fileno())
    _log.warning(
        "cut a torn tail of %d bytes after entry %d of %s; no receipt was given for it",
        len(raw) - keep, label_log.head_seq, path.name,
    )  # fmt: skip


def _refuse_rollback(label_log: LabelLog, row: LabelRow, signed: int) -> None:
    """The log must reach what was acknowledged and what was signed, and no further back."""
    label = label_log.label.hex()
    if label_log.head_seq < row.head_seq:
        raise Damaged(
            f"the log of label {label} ends at {label_log.head_seq}, but this hub has given "
            f"receipts up to {row.head_seq}. Restore the log from the archive or a backup; "
            "nothing was started."
        )
    if label_log.head_seq < signed:
        raise Damaged(
            f"the log of label {label} ends at {label_log.head_seq}, behind this hub's own "
            f"checkpoint at {signed}. If the index is an old copy, run `veen hub rebuild`; if the "
            "log is, restore it. Nothing was started."
        )


def find_unknown_labels(
    names: Iterable[str], unpublished: Iterable[CheckpointFileName], index: Index
) -> Iterator[str]:
    """Files of labels the index has never heard of: then the index is not of this log."""
    known = {row.label for row in index.labels()}
    for name in names:
        open_chunk_name = layout.parse_open_chunk(f"log/{name}") if name.endswith(".open") else None
        if open_chunk_name is not None and open_chunk_name.label not in known:
            yield name
    for checkpoint_file_name in unpublished:
        if checkpoint_file_name.label not in known:
            yield Path(layout.checkpoint(*checkpoint_file_name)).name


def sweep(datadir: DataDir) -> list[str]:
    """The names of the log's files, all on disk, without those of writes that never ended."""
    names = []
    for path in datadir.log.iterdir():
        if path.name.startswith(".") and path.name.endswith(".new"):
            path.unlink()
        else:
            names.append(path.name)
    durable.sync_directory(datadir.log)
    return names
