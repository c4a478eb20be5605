"""A short history of commits that passes through every step of the commit path."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from hub.admission.capability import Gate
from hub.admission.verified import Verified
from hub.control import StreamRecord
from hub.sequencer.committer import Committer, Unavailable
from hub.storage import identity
from hub.storage.datadir import DataDir, Lock
from hub.storage.log import HubLog
from veen import captoken, label
from veen.digest import h
from veen.limits import Limits
from veen.msg import Msg
from veen.profile import DEFAULT_PROFILE
from veen.sign import PrivateKey

LIMITS = Limits(max_checkpoint_interval=4)
ISSUER = PrivateKey(b"i" * 32)
CLIENTS = [PrivateKey(bytes([n]) * 32) for n in (1, 2)]
STREAMS = [
    StreamRecord(name=name, profile=DEFAULT_PROFILE) for name in ("record/app/a", "record/app/b")
]
CLOCK = 1_700_000_000

Acknowledge = Callable[[bytes, bytes], None]


def message(hub_id: bytes, stream: StreamRecord, client: PrivateKey, seq: int, token: bytes) -> Msg:
    ciphertext = bytes(32) + bytes(3) + b"\x10" + bytes(3) + b"\x10" + seq.to_bytes(32, "big")
    return Msg(
        profile_id=DEFAULT_PROFILE.profile_id(),
        label=label.label(label.routing_key(hub_id), stream.stream_id(), 0),
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
    lock = Lock(datadir)
    keys = identity.load_or_create(datadir, b"hub key seed".ljust, CLOCK)
    log = HubLog(datadir, keys, LIMITS, STREAMS)
    yield Committer(log, Gate(True, frozenset({ISSUER.public})))
    log.close()
    lock.release()


def play(committer: Committer, rounds: int, acknowledge: Acknowledge) -> int:
    """Go on with the history where the log stands; how many messages found no room."""
    hub_id = committer.log.keys.hub_id
    refused = 0
    tokens = [_authorized(committer, client) for client in CLIENTS]
    for _ in range(rounds):
        batch = []
        for stream in STREAMS:
            for client, token in zip(CLIENTS, tokens, strict=True):
                seq = _last_seq(committer, hub_id, stream, client) + 1
                batch.append(message(hub_id, stream, client, seq, token))
        outcomes = committer.commit([Verified.of(msg) for msg in batch], CLOCK)
        for msg, outcome in zip(batch, outcomes, strict=True):
            if isinstance(outcome, bytes):
                acknowledge(msg.encode(), outcome)
            else:
                assert isinstance(outcome, Unavailable), outcome
                refused += 1
    return refused


def _authorized(committer: Committer, client: PrivateKey) -> bytes:
    ids = [stream.stream_id() for stream in STREAMS]
    token = captoken.issue(ISSUER, subject_pk=client.public, stream_ids=ids, ttl=10**6)
    return committer.authorize(token, CLOCK).auth_ref


def _last_seq(committer: Committer, hub_id: bytes, stream: StreamRecord, client: PrivateKey) -> int:
    name = label.label(label.routing_key(hub_id), stream.stream_id(), 0)
    label_log = committer.log.label(name)
    if label_log is None:
        return 0
    return committer.log.cursors.client(label_log.label_no, client.public).client_seq


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
