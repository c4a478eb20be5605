"""Recorder checkpoints as a hub would sign them, without one."""

from __future__ import annotations

from veen.checkpoint import Checkpoint
from veen.crypto import SigningKey
from veen.hub_identity import HubIdentity, new_identity
from veen.label import DEFAULT_PROFILE, EpochLabels, routing_key, stream_id
from veen.recorder_checkpoint import EMPTY_ROOT, RecorderCheckpoint, StreamEnd, log_root

KEY = SigningKey(b"anchor test hub".ljust(32, b"."))
HUB: HubIdentity = new_identity(KEY.public, 0, "none")
PROFILE = b"p" * 32
START = 1_794_000_000
STREAMS = ("record/app/a", "record/app/b")


def a_checkpoint(
    created_at: int = START, sizes: tuple[int, ...] = (3, 0), mark: bytes = b""
) -> RecorderCheckpoint:
    """One over ``STREAMS``; roots follow from the sizes and ``mark``."""
    ends = sorted(
        (
            StreamEnd(stream_id=stream_id(name), last_seq=size, mmr_root=_root(name, size, mark))
            for name, size in zip(STREAMS, sizes, strict=True)
        ),
        key=lambda end: end.stream_id,
    )
    names = tuple(sorted(STREAMS, key=stream_id))
    checkpoint = RecorderCheckpoint(
        hub_id=HUB.hub_id,
        hub_public=KEY.public,
        profile_id=PROFILE,
        created_at=created_at,
        log_root=log_root(ends),
        ends=tuple(ends),
        names=names,
        checkpoints=tuple(
            _checkpoint(name, end) for name, end in zip(names, ends, strict=True) if end.last_seq
        ),
    )
    return checkpoint.signed(KEY)


def _root(name: str, size: int, mark: bytes) -> bytes:
    return (name.encode() + b"%d" % size + mark).ljust(32, b"_") if size else EMPTY_ROOT


def _checkpoint(name: str, end: StreamEnd) -> Checkpoint:
    labels = EpochLabels(routing_key(HUB.hub_id), end.stream_id, DEFAULT_PROFILE)
    return Checkpoint(
        label_prev=labels.at(0),
        label_curr=labels.at(0),
        upto_seq=end.last_seq,
        mmr_root=end.mmr_root,
        epoch=0,
    ).signed(KEY)
