"""A short history of commits that passes through every step of the commit path."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from hub.admission import Gate, VerifiedMsg
from hub.sequencer.committer import Committer, Unavailable
from hub.storage import identity
from hub.storage.datadir import DataDir, DataDirLock
from hub.storage.log import HubLog
from veen import captoken, label
from veen.crypto import SigningKey
from veen.digest import h
from veen.label import DEFAULT_PROFILE, Profile
from veen.limits import Limits
from veen.log.entry import StreamRecord
from veen.msg import Msg

LIMITS = Limits(max_checkpoint_interval=4)
ISSUER = SigningKey(b"i" * 32)
CLIENTS = [SigningKey(bytes([n]) * 32) for n in (1, 2)]
HOURLY = Profile(epoch_sec=3_600)
PLAIN = [
    StreamRecord(name=name, profile=DEFAULT_PROFILE) for name in ("record/app/a", "record/app/b")
]
EPOCHS = StreamRecord(name="epoch/app/c", profile=HOURLY)
STREAMS = [*PLAIN, EPOCHS]
CLOCK = 1_700_000_000
EPOCHS_LATER = 2 * HOURLY.epoch_sec

PROFILE_ID = bytes(32)

Acknowledge = Callable[[bytes, bytes], None]
"""Is told of a message and its receipt; of a recorder checkpoint, which has none, and b""."""


def label_of(hub_id: bytes, stream: StreamRecord, clock: int) -> bytes:
    epoch = stream.profile.epoch(clock)
    return label.derive_label(label.routing_key(hub_id), stream.stream_id(), epoch)


def message(name: bytes, profile: Profile, client: SigningKey, seq: int, token: bytes) -> Msg:
    ciphertext = bytes(32) + bytes(3) + b"\x10" + bytes(3) + b"\x10" + seq.to_bytes(32, "big")
    return Msg(
        profile_id=profile.profile_id(),
        label=name,
        client_id=client.public,
        client_seq=seq,
        prev_ack=0,
        auth_ref=token,
        ct_hash=h(ciphertext),
        ciphertext=ciphertext,
    ).signed(client)


@contextmanager
def opened(root: Path) -> Iterator[Committer]:
    datadir = DataDir(root)
    datadir.create()
    lock = DataDirLock(datadir)
    keys = identity.load_or_create(datadir, b"hub key seed".ljust, CLOCK)
    log = HubLog(datadir, keys, LIMITS, STREAMS)
    yield Committer(log, Gate(True, frozenset({ISSUER.public})))
    log.close()
    lock.release()


def play(committer: Committer, rounds: int, acknowledge: Acknowledge) -> int:
    """Go on with the history where the log stands; how many messages found no room."""
    tokens = [_authorized(committer, client) for client in CLIENTS]
    clock = _clock(committer)
    refused = sum(_send(committer, PLAIN, tokens, clock, acknowledge) for _ in range(rounds))
    refused += _send(committer, [EPOCHS], tokens, clock, acknowledge)
    for stream in (PLAIN[0], EPOCHS):
        _checkpoint(committer, label_of(committer.log.keys.hub_id, stream, clock), clock)
    acknowledge(committer.recorder_checkpoint(PROFILE_ID, clock, force=False).encode(), b"")
    committer.tick(clock + EPOCHS_LATER)
    return refused


def _clock(committer: Committer) -> int:
    """A time in the first epoch that has not ended."""
    clock, hub_id = CLOCK, committer.log.keys.hub_id
    while (row := committer.log.index.label(label_of(hub_id, EPOCHS, clock))) and row.closed:
        clock += EPOCHS_LATER
    return clock


def _send(
    committer: Committer,
    streams: list[StreamRecord],
    tokens: list[bytes],
    clock: int,
    acknowledge: Acknowledge,
) -> int:
    """One message of each client to each stream, in one group; how many found no room."""
    batch = []
    for stream in streams:
        name = label_of(committer.log.keys.hub_id, stream, clock)
        for client, token in zip(CLIENTS, tokens, strict=True):
            seq = _last_seq(committer, name, client) + 1
            batch.append(message(name, stream.profile, client, seq, token))
    outcomes = committer.commit([VerifiedMsg.of(msg) for msg in batch], clock)
    for msg, outcome in zip(batch, outcomes, strict=True):
        if isinstance(outcome, bytes):
            acknowledge(msg.encode(), outcome)
        else:
            assert isinstance(outcome, Unavailable), outcome
    return sum(isinstance(outcome, Unavailable) for outcome in outcomes)


def _checkpoint(committer: Committer, name: bytes, clock: int) -> None:
    """A checkpoint in the middle of a label, which a client asks for."""
    label_log = committer.log.label(name)
    if label_log is not None and label_log.head_seq > 1:
        committer.checkpoint(name, label_log.head_seq - 1, clock)


def _authorized(committer: Committer, client: SigningKey) -> bytes:
    ids = [stream.stream_id() for stream in STREAMS]
    token = captoken.issue(ISSUER, subject_pk=client.public, stream_ids=ids, ttl=10**6)
    return committer.authorize(token, CLOCK).auth_ref


def _last_seq(committer: Committer, name: bytes, client: SigningKey) -> int:
    label_log = committer.log.label(name)
    if label_log is None:
        return 0
    return committer.log.cursors.row(label_log.label_no, client.public).cursor.client_seq


def in_child(work: Callable[[], None]) -> int:
    """Run ``work`` in a process of its own; the wait status it ends with."""
    pid = os.fork()
    if pid == 0:
        code = 70
        try:
            work()
            code = 0
        finally:
            os._exit(code)
    return os.waitpid(pid, 0)[1]
