"""Recovery of a data directory after any stop: the log decides, the index follows.

The open chunk of each label is read from the state that was noted with its last checkpoint, if
the receipt there confirms it, and from its start otherwise; sealed chunks are not read. A torn
tail is cut, because its receipts never left the hub; a log that ends before what this hub has
signed is refused.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from hub.storage.checkpoint_index import last_listed
from hub.storage.datadir import DataDir
from hub.storage.index import ChunkRow, Index, LabelRow, ResumePoint
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
from veen.digest import h, u64be
from veen.errors import Malformed
from veen.limits import Limits
from veen.log import layout
from veen.log.chunk import ChunkTally
from veen.log.entry import FramedEntry
from veen.log.layout import CheckpointFileName
from veen.log.nodes import NODE_BYTES, NodeFile
from veen.system import durable

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Unindexed:
    """An entry of the open chunk that is not in the index yet."""

    label_log: LabelLog
    chunk_start: int
    at: int
    framed: FramedEntry


class Resume(NamedTuple):
    """A resume point, and where its entry begins in the open chunk."""

    point: ResumePoint
    at: int


def resume_point(label_log: LabelLog) -> ResumePoint:
    """The state of a label that a start can go on from."""
    peaks, tally = label_log.peaks, label_log.tally
    point = ResumePoint(
        peaks.size, tally.size, b"".join(peaks.hashes), b"".join(tally.hashes.hashes), b""
    )
    return point._replace(digest=_digest(label_log, point))


def open_label(
    datadir: DataDir,
    row: LabelRow,
    last: ChunkRow | None,
    limits: Limits,
    signed: Collection[int],
    resume: Resume | None = None,
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
    if resume is not None:
        _go_to(label_log, resume, limits, signed)
    ensure_node_files(label_log, limits)
    raw = _read_from(label_log.open_path(), label_log.tally.size)
    begun = label_log.tally.size
    unindexed = _replay(label_log, row, raw, limits, signed)
    _verify_not_rolled_back(label_log, row, max((*signed, last_listed(datadir, row.label))))
    replayed = label_log.tally.size - begun
    if replayed < len(raw):
        _cut_tail(label_log, raw[replayed:])
    elif unindexed:
        label_log.sync()
    label_log.nodes.close()
    return label_log, unindexed


def _go_to(label_log: LabelLog, resume: Resume, limits: Limits, signed: Collection[int]) -> None:
    """Set the state of a label to a resume point, if the receipt of its entry has its root.

    Otherwise nothing changes: the open chunk is read from its start.
    """
    point = resume.point
    peaks = _peaks(point.seq, point.peaks)
    entries = point.seq - label_log.head_seq
    hashes = _peaks(entries, point.hashes)
    if peaks is None or hashes is None or point.digest != _digest(label_log, point):
        return
    raw = _read_from(label_log.open_path(), resume.at, point.size)
    located = list(whole_entries(raw, label_log.label, point.seq, limits))
    if [entry.header.whole_size for entry in located] != [point.size - resume.at]:
        return
    receipt = located[0].opened().receipt
    if receipt.mmr_root == peaks.root():
        label_log.peaks, label_log.last_ts = peaks, receipt.hub_ts
        start_seq = label_log.tally.start_seq
        label_log.tally = ChunkTally(start_seq, entries, point.size, hashes)
        _verify_checkpoint(label_log, signed, receipt.mmr_root)


def _peaks(size: int, nodes: bytes) -> mmr.Peaks | None:
    """Peaks from their concatenation, or None if they do not fit a size."""
    count = size.bit_count()
    if size < 0 or len(nodes) != count * NODE_BYTES:
        return None
    return mmr.Peaks(
        size, tuple(nodes[at : at + NODE_BYTES] for at in range(0, len(nodes), NODE_BYTES))
    )


def _digest(label_log: LabelLog, point: ResumePoint) -> bytes:
    """A checksum of a resume point; the index has none of its own."""
    numbers = (point.seq, point.size, label_log.tally.start_seq)
    return h(label_log.label + b"".join(map(u64be, numbers)) + point.peaks + point.hashes)


def _read_from(path: Path, start: int, end: int | None = None) -> bytes:
    """The bytes of a file from ``start`` on; none if there is no file."""
    try:
        with path.open("rb") as file:
            file.seek(start)
            return file.read() if end is None else file.read(max(0, end - start))
    except FileNotFoundError:
        return b""


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
    """Take the entries after the state of ``label_log``; ``raw`` begins with them."""
    first, begun = label_log.head_seq + 1, label_log.tally.size
    unindexed, nodes = [], []
    for located in whole_entries(raw, row.label, first, limits):
        framed = located.opened()
        nodes.extend(_advance(label_log, located, framed))
        _verify_checkpoint(label_log, signed, framed.receipt.mmr_root)
        if label_log.head_seq > row.head_seq:
            at = begun + located.at
            unindexed.append(Unindexed(label_log, row.chunk_start, at, framed))
    label_log.nodes.write_from(first, b"".join(nodes))
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


def _cut_tail(label_log: LabelLog, tail: bytes) -> None:
    """Cut what follows the last complete entry, with a copy among the evidence."""
    path, keep = label_log.open_path(), label_log.tally.size
    name = f"tail-{label_log.label.hex()}-{label_log.head_seq + 1}-{h(tail)[:8].hex()}.bin"
    durable.write_once(label_log.datadir.evidence / name, tail)
    with path.open("r+b") as file:
        file.truncate(keep)
        durable.sync(file.fileno())
    _log.warning(
        "cut a torn tail of %d bytes after entry %d of %s; no receipt was given for it",
        len(tail), label_log.head_seq, path.name,
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
