"""What commands print: one JSON document with --json, readable lines without; errors on stderr."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Protocol

import typer
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

from veen.errors import Malformed, Untrusted, VeenError

OK, USAGE, NETWORK, INTEGRITY, REFUSED, SELFTEST = range(6)
"""Exit codes: usage, network, what a hub said does not hold, refused, a failed self-test."""

_HEARTBEAT_SEC = 10.0


class Unreachable(VeenError):
    """A hub that did not answer."""


class Refused(VeenError):
    """A hub, or a state of affairs, that said no."""


class Report(Protocol):
    def __call__(self, done: int, total: int) -> None: ...


def fail(error: VeenError) -> int:
    """Say what went wrong in one line; the exit code for it."""
    typer.echo(f"veen: {error}", err=True)
    if isinstance(error, Unreachable):
        return NETWORK
    if isinstance(error, (Untrusted, Malformed)):
        return INTEGRITY
    return REFUSED


def show(document: dict[str, Any], *, as_json: bool) -> None:
    if as_json:
        typer.echo(json.dumps(document, sort_keys=True, indent=1))
        return
    for key, value in document.items():
        typer.echo(f"{key}: {_plain(value)}")


def _plain(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, sort_keys=True)


@contextmanager
def progress(what: str) -> Iterator[Report]:
    """A bar on a terminal, a line every ten seconds elsewhere."""
    if sys.stderr.isatty():
        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            DownloadColumn(),
            TimeRemainingColumn(),
        )
        with Progress(*columns, console=Console(stderr=True)) as bar:
            task = bar.add_task(what)
            yield lambda done, total: bar.update(task, completed=done, total=total)
        return
    said = time.monotonic()

    def say(done: int, total: int) -> None:
        nonlocal said
        if time.monotonic() - said >= _HEARTBEAT_SEC:
            said = time.monotonic()
            typer.echo(f"{what}: {done} of {total} bytes", err=True)

    yield say
