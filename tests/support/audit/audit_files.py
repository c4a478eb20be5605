"""The files of a history, as a dictionary, in chunks of any size; and chunks that were forged."""

from __future__ import annotations

from collections.abc import Callable

from support.audit.audit_history import HOURLY, HUB, IDENTITY, LIMITS, Framed, History
from veen import mmr
from veen.checkpoint import Checkpoint
from veen.hub_identity import CheckpointBinding
from veen.log import layout
from veen.log.chunk import (
    CheckpointRef,
    ChunkTally,
    PeakSnapshot,
    encode_checkpoint_index,
    read_entries,
)
from veen.log.entry import Entry
from veen.wire import cbor

Files = dict[str, bytes]


def laid_out(history: History, cut: Callable[[], int]) -> Files:
    """The files of a history whose chunks hold ``cut()`` entries; the last one stays open."""
    files: Files = {
        layout.IDENTITY: IDENTITY.encode(),
        layout.IDENTITY_SIG: IDENTITY.signature_by(HUB),
        layout.KEY_MAP: cbor.dump([[key.key_id, key.hub_pk] for key in IDENTITY.hub_keys]),
        layout.CHECKPOINT_BINDING: b"",
    }
    for label, entries in history.entries.items():
        _lay_label(files, label, entries, cut)
    return files


def _lay_label(
    files: Files, label: bytes, entries: list[Framed], cut: Callable[[], int]
) -> None:  # fmt: skip
    peaks, refs, rest = mmr.EMPTY, {}, list(entries)
    while rest:
        size = cut()
        taken, rest = rest[:size], rest[size:]
        raw, tally = b"", ChunkTally.starting_at(taken[0].seq)
        for item in taken:
            peaks = peaks.append(item.receipt.leaf_hash)
            raw += item.encode()
            entry = Entry(item.msg.encode(), item.receipt.encode())
            tally = tally.plus(len(item.encode()), entry.entry_hash())
        if not rest:
            files[layout.open_chunk(layout.OpenChunkName(label, taken[0].seq))] = raw
            break
        name = layout.ChunkName(label, taken[0].seq, peaks.size)
        files[layout.chunk(name)] = raw
        files[layout.summary(name)] = tally.summary(label, peaks.root()).encode()
        refs[peaks.size] = _lay_checkpoint(files, label, taken, peaks)
    if refs:
        files[layout.checkpoint_index(label)] = encode_checkpoint_index(refs)


def _lay_checkpoint(
    files: Files, label: bytes, taken: list[Framed], peaks: mmr.Peaks
) -> CheckpointRef:
    is_hourly = taken[0].msg.profile_id == HOURLY.profile_id()
    epoch = HOURLY.epoch(taken[0].receipt.hub_ts) if is_hourly else 0
    files[layout.peaks(label, peaks.size)] = PeakSnapshot.of(label, peaks).encode()
    checkpoint = Checkpoint(
        label_prev=label, label_curr=label, upto_seq=peaks.size, mmr_root=peaks.root(), epoch=epoch
    ).signed(HUB)
    files[layout.checkpoint(label, peaks.size)] = checkpoint.encode()
    files[layout.CHECKPOINT_BINDING] += CheckpointBinding(
        hub_id=IDENTITY.hub_id, key_id=IDENTITY.current.key_id, label=label, epoch=epoch,
        upto_seq=peaks.size, mmr_root=peaks.root(),
    ).encode()  # fmt: skip
    return CheckpointRef(
        mmr_root=peaks.root(), start_seq=taken[0].seq, end_seq=peaks.size,
        peaks_ref=layout.peaks(label, peaks.size),
    )  # fmt: skip


def forged(raw: bytes, edit: Callable[[list[Framed]], object]) -> bytes:
    """A chunk with its entries edited, each framed as if it were right."""
    entries = [
        Framed(header.label, header.stream_seq, entry.msg(), entry.receipt())
        for _, header, entry in read_entries(raw, LIMITS)
    ]
    edit(entries)
    return b"".join(entry.encode() for entry in entries)
