"""``veen bench``: measure how fast a client sends to a hub, and reads from it."""

from __future__ import annotations

import os
import time
from array import array
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Final, TypeVar

import typer

from cli.console import progress, show
from cli.options import ClientOptions, StreamOption
from veen.captoken import read_token

T = TypeVar("T")
_WINDOW: Final = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class PaceSummary:
    """A measurement; milliseconds are for one result, averaged over a window."""

    count: int
    seconds: float
    per_sec: float
    p50_ms: float
    p95_ms: float
    p99_ms: float
    max_ms: float


class Pace:
    """Measures a rate. ``clock`` is monotonic, in seconds. Results in batches need a ``window``."""

    def __init__(self, clock: Callable[[], float], window: int) -> None:
        self._clock = clock
        self._window = window
        self._steps = array("d")
        self._count = 0
        self._seconds = 0.0

    def timed(self, results: Iterable[T]) -> Iterator[T]:
        """The same results, with the time spent waiting for each recorded."""
        waiting = iter(results)
        spent = 0.0
        while True:
            began = self._clock()
            try:
                item = next(waiting)
            except StopIteration:
                break
            spent += self._clock() - began
            self._count += 1
            if self._count % self._window == 0:
                self._note(spent, self._window)
                spent = 0.0
            yield item
        if self._count % self._window:
            self._note(spent, self._count % self._window)

    def summary(self) -> PaceSummary:
        steps = sorted(self._steps)
        return PaceSummary(
            count=self._count,
            seconds=round(self._seconds, 3),
            per_sec=round(self._count / self._seconds, 1) if self._seconds else 0.0,
            p50_ms=_percentile(steps, 50),
            p95_ms=_percentile(steps, 95),
            p99_ms=_percentile(steps, 99),
            max_ms=_percentile(steps, 100),
        )

    def _note(self, spent: float, results: int) -> None:
        self._steps.append(spent / results)
        self._seconds += spent


def _percentile(ordered: list[float], percent: int) -> float:
    """The percentile of the step times."""
    if not ordered:
        return 0.0
    rank = -(-len(ordered) * percent // 100)
    return round(1000 * ordered[max(rank, 1) - 1], 3)


app = typer.Typer(help="Benchmark a client against a hub.", no_args_is_help=True)


@app.command()
def send(
    at: ClientOptions,
    stream: StreamOption,
    count: Annotated[int, typer.Option(min=1, metavar="N", help="Number of messages.")] = 1000,
    size: Annotated[int, typer.Option(min=0, metavar="BYTES", help="Size of each body.")] = 64,
    one_by_one: Annotated[
        bool, typer.Option("--one-by-one", help="Wait for each receipt before the next message.")
    ] = False,
    cap: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Capability to write with.")
    ] = None,
) -> None:
    """Send and verify messages; print the rate and latency percentiles.

    Example: veen bench send --hub ./hub --client ./me --stream bench/main --count 1000
    """
    token = read_token(cap) if cap else None
    pace = Pace(time.perf_counter, window=1 if one_by_one else _WINDOW)
    bodies = (os.urandom(size) for _ in range(count))
    with at.open() as client:
        sent = (
            (client.send(stream, body, capability=token) for body in bodies)
            if one_by_one
            else client.send_many(stream, bodies, capability=token)
        )
        _run(pace, sent, "bench send", count)
    show({"stream": stream, "size": size, **asdict(pace.summary())})


@app.command()
def read(
    at: ClientOptions,
    stream: StreamOption,
    count: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Number of messages; default: all.")
    ] = None,
    decrypt: Annotated[bool, typer.Option("--decrypt", help="Also decrypt each message.")] = False,
) -> None:
    """Read and verify a stream; print the rate and latency percentiles.

    Example: veen bench read --hub ./hub --client ./me --stream bench/main --decrypt
    """
    pace = Pace(time.perf_counter, window=_WINDOW)
    with at.open() as client:
        pairs = client.read(stream, to_seq=count)
        results = (client.open_payload(pair.msg) for pair in pairs) if decrypt else pairs
        _run(pace, results, "bench read", count)
    show({"stream": stream, "decrypt": decrypt, **asdict(pace.summary())})


def _run(pace: Pace, results: Iterable[object], what: str, count: int | None) -> None:
    with progress(what, "messages") as report:
        for done, _ in enumerate(pace.timed(results), 1):
            report(done, count)
