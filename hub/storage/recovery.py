"""Recovery of a data directory after any stop: the log decides, the index follows.

The open chunk of each label is read from its start; sealed chunks are not. A torn tail is cut,
because its receipts never left the hub; a log that ends before what this hub has signed is refused.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from hub.storage.checkpoint_index import last_listed
from hub.storage.datadir import DataDir
from hub.storage.index import ChunkRow, Index, LabelRow
from hub.storage.label_log import (
    Damaged,
    LabelLog,
    LocatedEntry,
    read_peaks,
    read_summary,
    whole_entries,
)
from hub.storage.nodes import ensure_node_files
from veen import mmr
from veen.checkpoint import Checkpoint
from veen.digest import h
from veen.errors import Malformed
from veen.limits import Limits
from veen.log import layout
from veen.log.chunk import ChunkTally
from veen.log.entry import FramedEntry
from veen.log.layout import CheckpointFileName
from veen.log.nodes import NodeFile
from veen.system import durable

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Unindexed:
    """An entry of the open chunk that is not in the index yet."""

    label_log: LabelLog
    chunk_start: int
    at: int
    framed: FramedEntry


def open_label(
    datadir: DataDir, row: LabelRow, last: ChunkRow | None, limits: Limits, signed: Collection[int]
) -> tuple[LabelLog, list[Unindexed]]:
    """Open a label from its files; its state, and the entries that the index lacks.

    ``last`` is its last sealed chunk. The label has checkpoints at ``signed`` from its end on.
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
    _verify_peaks(label_log, last, signed)
    ensure_node_files(label_log, limits)
    path = label_log.open_path()
    raw = path.read_bytes() if path.exists() else b""
    unindexed = _replay(label_log, row, raw, limits, signed)
    _verify_not_rolled_back(label_log, row, max((*signed, last_listed(datadir, row.label))))
    if label_log.tally.size < len(raw):
        _cut_tail(label_log, raw)
    elif unindexed:
        label_log.sync()
    label_log.nodes.close()
    return label_log, unindexed


def _verify_peaks(label_log: LabelLog, last: ChunkRow | None, signed: Collection[int]) -> None:
    """Raise Damaged unless the last chunk confirms the peaks and the checkpoint at its end.

    Everything signed from here on grows from these peaks.
    """
    if last is None:
        return
    name = layout.ChunkName(label_log.label, last.start_seq, last.end_seq)
    root = read_summary(label_log.datadir, name).mmr_root_end
    if label_log.peaks.root() != root:
        raise Damaged(
            f"{layout.peaks(label_log.label, last.end_seq)} has root "
            f"{label_log.peaks.root().hex()}, but the chunk that ends there has {root.hex()}: "
            "run `veen hub rebuild`. Nothing was started."
        )
    _verify_checkpoint(label_log, signed, root)


def _replay(
    label_log: LabelLog,
    row: LabelRow,
    raw: bytes,
    limits: Limits,
    signed: Collection[int],
) -> list[Unindexed]:
    start_seq = row.chunk_start
    unindexed, nodes = [], []
    for located in whole_entries(raw, row.label, start_seq, limits):
        framed = located.opened()
        nodes.extend(_advance(label_log, located, framed))
        _verify_checkpoint(label_log, signed, framed.receipt.mmr_root)
        if label_log.head_seq > row.head_seq:
            unindexed.append(Unindexed(label_log, start_seq, located.at, framed))
    label_log.nodes.write_from(start_seq, b"".join(nodes))
    return unindexed


def _advance(label_log: LabelLog, located: LocatedEntry, framed: FramedEntry) -> list[bytes]:
    peaks, completed = mmr.grow(label_log.peaks, framed.receipt.leaf_hash)
    if peaks.root() != framed.receipt.mmr_root:
        raise Damaged(
            f"entry {peaks.size} of {label_log.open_path().name} at byte {located.at} has "
            "another "
            "root than its receipt: run `veen hub verify`"
        )
    label_log.peaks = peaks
    label_log.tally = label_log.tally.plus(located.header.whole_size, located.header.entry_hash)
    label_log.last_ts = framed.receipt.hub_ts
    return completed


def _verify_checkpoint(label_log: LabelLog, signed: Collection[int], root: bytes) -> None:
    """Raise Damaged if the checkpoint at the head has another root than the receipt."""
    if label_log.head_seq not in signed:
        return
    file = layout.checkpoint(label_log.label, label_log.head_seq)
    try:
        checkpoint = Checkpoint.decode(label_log.datadir.file(file).read_bytes())
    except FileNotFoundError:
        return  # `veen hub verify` reports it; nothing grows from it.
    except Malformed as error:
        raise Damaged(f"{file}: {error}: run `veen hub verify`") from error
    if checkpoint.mmr_root != root:
        raise Damaged(
            f"{file} has root {checkpoint.mmr_root.hex()}, but the receipt at "
            f"{label_log.head_seq} has {root.hex()}: "
            "run `veen hub rebuild`, which sets such a checkpoint aside. Nothing was started."
        )


def _cut_tail(label_log: LabelLog, raw: bytes) -> None:
    """Cut what follows the last complete entry, with a copy among the evidence."""
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


def _verify_not_rolled_back(label_log: LabelLog, row: LabelRow, signed: int) -> None:
    """Raise Damaged if the log ends before what was acknowledged or signed."""
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
    """Files of labels that are not in the index: it does not belong to this log."""
    known = {row.label for row in index.labels()}
    for name in names:
        chunk = layout.parse_open_chunk(f"log/{name}") if name.endswith(".open") else None
        if chunk is not None and chunk.label not in known:
            yield name
    for checkpoint in unpublished:
        if checkpoint.label not in known:
            yield Path(layout.checkpoint(*checkpoint)).name


def sweep(datadir: DataDir) -> list[str]:
    """Remove temporary files of interrupted writes, sync, and list the other files."""
    names = []
    for path in datadir.log.iterdir():
        if path.name.startswith(".") and path.name.endswith(".new"):
            path.unlink()
        else:
            names.append(path.name)
    durable.sync_directory(datadir.log)
    return names
