"""A running hub over HTTP, its clients on the same cores: batches, and messages one by one.

Messages are made and receipts are verified outside the timed windows; within them the client
only sends bytes and reads them. Every message is durable before it is answered.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack

import bare
import feed
import served
from line import Line, Run, drive
from measure import Comparison, Measurement, compare_timed

from veen.msg import Msg
from veen.wire.api import BatchRequest, BatchResponse, SubmitRequest, SubmitResponse

CORES = 2
ROUNDS = 9
BATCH = 256
BATCH_LINES = 8
BATCHES = 3  # of each line in a round
SINGLE_LINES = 16
SINGLES = 64  # of each line in a round
BARE = 3_000
NO_OP = "POST /v9/submit, which is answered with E.VERSION at once"
VERIFIED = "receipts verified outside the timed window"
MICROSECONDS, MILLISECONDS = 1e6, 1e3
VERSION_REFUSED = 400


class Bench:
    """A hub, its clients, one a line, and what they were told."""

    def __init__(
        self, pool: ProcessPoolExecutor, hub: served.Served, lines: Sequence[Line]
    ) -> None:
        self._pool = pool
        self._hub = hub
        self._lines = lines
        self._writers = hub.writers(len(lines))
        self._receipts: list[tuple[Msg, bytes]] = []
        self.latencies: list[float] = []
        self.cpu: list[float] = []
        self.bare_cpu: list[float] = []

    def ceiling(self) -> float:
        """Seconds of one message if a hub with every core did nothing but the primitives."""
        spent = list(self._pool.map(bare.both_with_cpu, [BARE] * CORES))
        self.bare_cpu += (cpu for _, cpu in spent)
        return 1 / sum(1 / seconds for seconds, _ in spent)

    def batches(self) -> float:
        """Seconds of one message sent in batches."""
        writers = self._writers[:BATCH_LINES]
        given = [[writer.write(BATCH) for _ in range(BATCHES)] for writer in writers]
        requests = [[_batch(msgs) for msgs in line] for line in given]
        count = BATCH * BATCHES * len(writers)
        before = self._hub.cpu_seconds()
        run = drive(self._lines[:BATCH_LINES], requests)
        self.cpu.append((self._hub.cpu_seconds() - before) / count)
        for line, answers in zip(given, run.answers, strict=True):
            for msgs, answer in zip(line, answers, strict=True):
                results = BatchResponse.decode(answer.body).results
                self._receipts += zip(msgs, (result.receipt for result in results), strict=True)
        return run.seconds / count

    def singles(self) -> float:
        """Seconds of one message sent by itself."""
        given = [writer.write(SINGLES) for writer in self._writers]
        run = drive(self._lines, [[_single(msg) for msg in msgs] for msgs in given])
        self.latencies += run.latencies()
        for msgs, answers in zip(given, run.answers, strict=True):
            result = [SubmitResponse.decode(answer.body).receipt.encode() for answer in answers]
            self._receipts += zip(msgs, result, strict=True)
        return _per_request(run)

    def no_op(self) -> float:
        """Seconds of one request that is as large and wants nothing."""
        request = self._lines[0].post("/v9/submit", b"\xa1" + bytes(900))
        return _per_request(
            drive(self._lines, [[request] * SINGLES for _ in self._lines], VERSION_REFUSED)
        )

    def verify(self) -> None:
        feed.verify(self._receipts, self._hub.identity.current.hub_pk)


def measure() -> Iterator[Measurement]:
    # The pool forks before there are threads.
    with ProcessPoolExecutor(CORES) as pool, served.hub() as hub, ExitStack() as stack:
        list(pool.map(bare.both, [1] * CORES))
        yield _spread(hub.busiest(SINGLE_LINES))
        lines = [stack.enter_context(line) for line in hub.even_lines(SINGLE_LINES)]
        bench = Bench(pool, hub, lines)
        batches = compare_timed(bench.ceiling, bench.batches, ROUNDS)
        singles = compare_timed(bench.no_op, bench.singles, ROUNDS)
        bench.verify()
        yield from _of_batches(batches, bench)
        yield from _of_singles(singles, sorted(bench.latencies))


def _spread(busiest: int) -> Measurement:
    """How evenly connections come; the other measurements make them even."""
    return Measurement(
        bench="hub_http_spread",
        value=busiest,
        unit=f"of {SINGLE_LINES} new connections on the busiest worker",
        against=f"an even share among {served.WORKERS} workers",
        ratio=busiest * served.WORKERS / SINGLE_LINES,
    )


def _of_batches(comparison: Comparison, bench: Bench) -> Iterator[Measurement]:
    yield Measurement(
        bench="hub_http_batch",
        value=1 / comparison.other_seconds,
        unit="messages/s",
        against=f"bare Ed25519 verify and sign on {CORES} cores at once; {VERIFIED}",
        ratio=comparison.ratio,
        at_least=0.60,
    )
    spent = statistics.median(bench.cpu)
    yield Measurement(
        bench="hub_http_batch_cpu",
        value=spent * MICROSECONDS,
        unit="us of the hub's CPU a message",
        against="CPU time of one bare Ed25519 verify and sign, over this",
        ratio=statistics.median(bench.bare_cpu) / spent,
    )


def _of_singles(comparison: Comparison, latencies: list[float]) -> Iterator[Measurement]:
    yield Measurement(
        bench="hub_http_single",
        value=1 / comparison.other_seconds,
        unit="requests/s",
        against=f"{NO_OP}, as often on as many connections ({SINGLE_LINES}); {VERIFIED}",
        ratio=comparison.ratio,
        at_least=0.60,
    )
    cuts = statistics.quantiles(latencies, n=100)
    for name, seconds in (("p50", cuts[49]), ("p99", cuts[98])):
        yield Measurement(
            bench=f"hub_http_single_{name}",
            value=seconds * MILLISECONDS,
            unit="ms",
            against=f"mean time between answers to {NO_OP}, on one of {SINGLE_LINES} connections",
            ratio=seconds / (SINGLE_LINES * comparison.seconds),
        )


def _per_request(run: Run) -> float:
    return run.seconds / (SINGLES * SINGLE_LINES)


def _batch(msgs: list[Msg]) -> bytes:
    return Line.post(
        "/v1/submit_batch", BatchRequest(msgs=tuple(m.encode() for m in msgs)).encode()
    )


def _single(msg: Msg) -> bytes:
    return Line.post("/v1/submit", SubmitRequest(msg=msg.encode()).encode())
