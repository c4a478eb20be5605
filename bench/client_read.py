"""Events of 512 bytes read from a hub and verified, without and with opening them.

The hub has two workers and shares the cores with its client. Every round is a client that knows
nothing yet and reads all there is: pages, both signatures of each pair, the roots, its state on
disk after each page.
"""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import bare
import feed
import sample
import served
from client_send import client
from measure import Measurement, compare_timed

from veen.client.hub_api import HubApi
from veen.client.reader import open_pair, read
from veen.client.session import Session
from veen.client.transport import HubAddress, Transport
from veen.keystore.card import Identity
from veen.label import DEFAULT_PROFILE
from veen.payload import open_payload
from veen.system.environment import Runtime

ROUNDS = 7
EVENTS = 8_192
BARE = 2_000
BARE_OPEN = 1_000
CIPHERTEXT = sample.a_ciphertext()
TWO = "two bare Ed25519 verifications, one after another"
MICROSECONDS = 1e6


class Bench:
    """Reads of one log, and the CPU time that they and the bare primitives took."""

    def __init__(self, url: str, identity: Identity) -> None:
        self._url = url
        self._identity = identity
        self._cpu: list[float] = []
        self._bare_cpu: list[float] = []

    def two_verifications(self) -> float:
        """Seconds of two bare verifications."""
        begun = time.process_time()
        seconds = 2 * bare.verify(BARE)
        self._bare_cpu.append(2 * (time.process_time() - begun) / BARE)
        return seconds

    def verified(self) -> float:
        """Seconds of one event that is read and verified."""
        with newcomer(self._url, self._identity) as session:
            labels = session.labels(feed.STREAM, DEFAULT_PROFILE)
            begun, cpu = time.perf_counter(), time.process_time()
            count = sum(1 for _ in read(session, labels, feed.STREAM))
            seconds, cpu = time.perf_counter() - begun, time.process_time() - cpu
        assert count == EVENTS
        self._cpu.append(cpu / EVENTS)
        return seconds / EVENTS

    def with_open(self) -> float:
        """Seconds of two bare verifications and a bare open."""
        begun = time.perf_counter()
        for _ in range(BARE_OPEN):
            open_payload(
                private=sample.READER_PRIVATE,
                place=sample.PLACE,
                ciphertext=CIPHERTEXT,
                limits=sample.LIMITS,
            )
        return (time.perf_counter() - begun) / BARE_OPEN + 2 * bare.verify(BARE)

    def opened(self) -> float:
        """Seconds of one event that is read, verified and opened."""
        with newcomer(self._url, self._identity) as session:
            labels = session.labels(feed.STREAM, DEFAULT_PROFILE)
            begun = time.perf_counter()
            for pair in read(session, labels, feed.STREAM):
                assert open_pair(session, pair, DEFAULT_PROFILE).body == sample.BODY
            return (time.perf_counter() - begun) / EVENTS

    def cpu(self) -> tuple[float, float]:
        """CPU seconds of an event that is read and verified, and of two bare verifications."""
        return statistics.median(self._cpu), statistics.median(self._bare_cpu)


def measure() -> Iterator[Measurement]:
    with served.hub("--reads", "open") as hub:
        with client(hub) as writer:
            identity = writer.session.identity
            count = sum(1 for _ in writer.send_many(feed.STREAM, [sample.BODY] * EVENTS))
        assert count == EVENTS
        bench = Bench(f"http://127.0.0.1:{hub.port}", identity)
        reading = compare_timed(bench.two_verifications, bench.verified, ROUNDS)
        opening = compare_timed(bench.with_open, bench.opened, ROUNDS)
    cpu, bare_cpu = bench.cpu()
    yield Measurement(
        bench="client_read",
        value=1 / reading.other_seconds,
        unit="events/s, verified",
        against=TWO,
        ratio=reading.ratio,
        at_least=0.70,
    )
    yield Measurement(
        bench="client_read_cpu",
        value=MICROSECONDS * cpu,
        unit="µs of the client's CPU an event",
        against=TWO,
        ratio=bare_cpu / cpu,
    )
    yield Measurement(
        bench="client_read_open",
        value=1 / opening.other_seconds,
        unit="events/s, verified and opened",
        against=f"{TWO}, and one bare open",
        ratio=opening.ratio,
        at_least=0.70,
    )


@contextmanager
def newcomer(url: str, identity: Identity) -> Iterator[Session]:
    """A client that has met the hub and has read nothing."""
    around = Runtime(clock=lambda: int(time.time()), random=os.urandom, sleep=time.sleep)
    transport = Transport(url, runtime=around)
    with tempfile.TemporaryDirectory(prefix="veen-bench-", dir="/var/tmp") as root:
        session = Session(Path(root), identity, HubApi(transport), around)
        session.meet(HubAddress(transport.url, None), None)
        yield session
    transport.close()
