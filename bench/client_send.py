"""Events of 512 bytes from a program to a hub: emitted, sealed, sent, and their receipts verified.

The hub has two workers and shares the cores with its client. Everything counts: the outbox, the
seal, the way there and back, the proof of each receipt, the state on disk.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import feed
import sample
import served
from measure import Measurement, compare_timed

from veen.captoken import issue
from veen.client.client import Client
from veen.client.sender import BATCH
from veen.crypto import HPKE_KEY_BYTES
from veen.digest import h
from veen.keystore.directory import ClientDir
from veen.label import stream_id
from veen.msg import Msg
from veen.payload import seal_payload

ROUNDS = 7
EVENTS = 8 * BATCH
BARE = 1_000
_TTL = 10**6


def measure() -> Iterator[Measurement]:
    with served.hub() as hub, client(hub) as item:
        list(item.send_many(feed.STREAM, [sample.BODY] * BATCH))
        sending = compare_timed(bare_seal, lambda: send(item), ROUNDS)
        against_msg = compare_timed(bare_msg, lambda: send(item), ROUNDS)
        emitting = compare_timed(bare_seal, lambda: emit(item), ROUNDS)
    yield Measurement(
        bench="client_send",
        value=1 / sending.other_seconds,
        unit="events/s",
        against="bare seal of the same payload, one after another",
        ratio=sending.ratio,
        at_least=0.60,
    )
    yield Measurement(
        bench="client_send_msg",
        value=1 / against_msg.other_seconds,
        unit="events/s",
        against="the same payload sealed and signed into a MSG that goes nowhere",
        ratio=against_msg.ratio,
    )
    yield Measurement(
        bench="client_emit",
        value=1 / emitting.other_seconds,
        unit="events/s, each durable by itself",
        against="bare seal of the same payload, one after another",
        ratio=emitting.ratio,
    )


@contextmanager
def client(hub: served.Served) -> Iterator[Client]:
    """A client with a capability, in a directory on a disk."""
    with tempfile.TemporaryDirectory(prefix="veen-bench-", dir="/var/tmp") as root:
        home = ClientDir(Path(root) / "client")
        home.create(now=int(time.time()), random=os.urandom, passphrase=None)
        with Client.open(home.root, f"http://127.0.0.1:{hub.port}", sealers=1) as result:
            token = issue(
                feed.ISSUER,
                subject_pk=result.session.identity.client_id,
                stream_ids=[stream_id(feed.STREAM)],
                ttl=_TTL,
            )
            result.session.api.authorize(token)
            result.renew(token)
            yield result


def bare_seal() -> float:
    """Seconds of one seal and nothing else."""
    begun = time.perf_counter()
    for _ in range(BARE):
        _ciphertext()
    return (time.perf_counter() - begun) / BARE


def bare_msg() -> float:
    """Seconds of one sealed and signed MSG that goes nowhere."""
    begun = time.perf_counter()
    for number in range(BARE):
        _msg(_ciphertext(), number).signed(sample.CLIENT).encode()
    return (time.perf_counter() - begun) / BARE


def _ciphertext() -> bytes:
    return seal_payload(
        recipient=sample.READER_PUBLIC,
        ephemeral=os.urandom(HPKE_KEY_BYTES),
        place=sample.PLACE,
        header=sample.HEADER,
        body=sample.BODY,
        limits=sample.LIMITS,
    ).ciphertext


def _msg(ciphertext: bytes, client_seq: int) -> Msg:
    return Msg(
        profile_id=sample.PLACE.profile.profile_id(),
        label=sample.PLACE.label,
        client_id=sample.PLACE.client_id,
        client_seq=client_seq,
        prev_ack=sample.PLACE.prev_ack,
        auth_ref=sample.PLACE.auth_ref,
        ct_hash=h(ciphertext),
        ciphertext=ciphertext,
    )


def send(client: Client) -> float:
    """Seconds of one event that is sent in batches, its receipt in hand."""
    begun = time.perf_counter()
    count = sum(1 for _ in client.send_many(feed.STREAM, [sample.BODY] * EVENTS))
    assert count == EVENTS
    return (time.perf_counter() - begun) / EVENTS


def emit(client: Client) -> float:
    """Seconds of one event that is kept, to be sent later."""
    begun = time.perf_counter()
    for _ in range(BATCH):
        client.emit(feed.STREAM, sample.BODY)
    seconds = (time.perf_counter() - begun) / BATCH
    client.flush()
    return seconds
