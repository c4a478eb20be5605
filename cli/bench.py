"""``veen bench``: how fast a client sends to a hub, and reads from it."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Final

import typer

from cli.cap import read_token
from cli.console import progress, show
from cli.options import ClientOptions, StreamOption
from veen.client.pace import Pace

app = typer.Typer(help="Measure a client against a hub.", no_args_is_help=True)

_WINDOW: Final = 256


@app.command()
def send(
    at: ClientOptions,
    stream: StreamOption,
    count: Annotated[int, typer.Option(min=1, metavar="N", help="How many messages.")] = 1000,
    size: Annotated[int, typer.Option(min=0, metavar="BYTES", help="Body of each.")] = 64,
    one_by_one: Annotated[
        bool, typer.Option("--one-by-one", help="Wait for each receipt before the next.")
    ] = False,
    cap: Annotated[
        Path | None, typer.Option(metavar="FILE", help="The capability to write with.")
    ] = None,
) -> None:
    """Seal, send and verify messages; print the rate, and percentiles of the time for one.

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
        int | None, typer.Option(min=1, metavar="N", help="How many messages; else all.")
    ] = None,
    decrypt: Annotated[bool, typer.Option("--decrypt", help="Open each message as well.")] = False,
) -> None:
    """Read and verify a stream; print the rate, and percentiles of the time for one message.

    Example: veen bench read --hub ./hub --client ./me --stream bench/main --decrypt
    """
    pace = Pace(time.perf_counter, window=_WINDOW)
    with at.open() as client:
        pairs = client.read(stream, to_seq=count)
        results = (client.open_payload(one.msg) for one in pairs) if decrypt else pairs
        _run(pace, results, "bench read", count)
    show({"stream": stream, "decrypt": decrypt, **asdict(pace.summary())})


def _run(pace: Pace, results: Iterable[object], what: str, count: int | None) -> None:
    with progress(what, "messages") as report:
        for done, _ in enumerate(pace.timed(results), 1):
            report(done, count)
