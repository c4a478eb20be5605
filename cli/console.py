"""Output of commands: one JSON document, readable lines, or errors only; and progress."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Annotated, Any, Final

import typer

from veen.system.environment import Progress, Watch, no_progress
from veen.timestamp import iso8601, iso8601_ms

_HEARTBEAT_SEC: Final = 10.0
_SHORTEST_SEC: Final = 0.001
_MANY: Final = 1000
_SECONDS: Final = frozenset(
    {
        *("created_at", "issued_at", "expires_at", "retired_at", "forked_at", "checkpoint_at"),
        *("hub_ts", "last_hub_ts", "hub_commit_time", "import_time", "hub_identity_since"),
        *("time_from", "time_to", "valid_from", "valid_until", "not_after"),
        *("before", "closed_before"),
    }
)
"""Keys of Unix times in seconds, and below in milliseconds."""
_MILLISECONDS: Final = frozenset({"event_time"})
_CONTENT: Final = frozenset({"body", "payload", "row", "rows"})
"""Keys of what users recorded: it is printed as it is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GlobalOptions:
    """The global options of every command."""

    json: Annotated[bool, typer.Option("--json", help="Print JSON, errors too.")] = False
    quiet: Annotated[bool, typer.Option("--quiet", help="Print errors only.")] = False
    timeout_ms: Annotated[
        int | None,
        typer.Option("--timeout-ms", min=1, metavar="N", help="Timeout of one response."),
    ] = None

    def over(self, outer: GlobalOptions) -> GlobalOptions:
        """The combination of global options given twice, as in ``veen --json hub key --quiet``."""
        return GlobalOptions(
            json=self.json or outer.json,
            quiet=self.quiet or outer.quiet,
            timeout_ms=self.timeout_ms or outer.timeout_ms,
        )


_DEFAULT: Final = GlobalOptions()
_global_options: ContextVar[GlobalOptions] = ContextVar("global_options", default=_DEFAULT)


def global_options() -> GlobalOptions:
    return _global_options.get()


def apply_global_options(given: GlobalOptions) -> None:
    _global_options.set(given.over(_global_options.get()))


@contextmanager
def broken_pipe_ignored() -> Iterator[None]:
    """End silently when the reader of the output is gone, as in ``veen stream … | head``."""
    try:
        yield
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def show(document: Mapping[str, Any], text: str | None = None) -> None:
    """The result of a command: a document, or in text a line of its own or a line for each entry.

    An entry that is a list has a line for each of its elements. Times are shown as ISO 8601 too.
    """
    if global_options().json:
        shown = with_times(document, _number_and_iso)
        typer.echo(json.dumps({"ok": True, **shown}, sort_keys=True, indent=1))
    elif text is not None:
        show_text(text.splitlines())
    else:
        show_text(_lines(with_times(document, _readable)))


def show_one(document: Mapping[str, Any], text: Iterable[str]) -> None:
    """Print one of many results: JSON on a line of its own, or lines of text."""
    if global_options().json:
        shown = with_times(document, _number_and_iso)
        typer.echo(json.dumps({"ok": True, **shown}, sort_keys=True))
    else:
        show_text(text)


def show_text(lines: Iterable[str]) -> None:
    if not global_options().quiet:
        for line in lines:
            typer.echo(printable(line))


def notice(line: str) -> None:
    """Print a note for people beside the result."""
    if not global_options().quiet:
        typer.echo(printable(line), err=True)


def printable(text: str) -> str:
    """Untrusted text on one line, without control characters."""
    return "".join(item if item.isprintable() else ascii(item)[1:-1] for item in text)


def with_times(value: Any, render: Callable[[str, int, str], dict[str, Any]]) -> Any:
    """The document with ``render(key, number, ISO 8601)`` in place of each time."""
    if isinstance(value, list):
        return [with_times(element, render) for element in value]
    if not isinstance(value, Mapping):
        return value
    shown: dict[str, Any] = {}
    for key, item in value.items():
        if (moment := _iso8601(key, item)) is not None:
            shown |= render(key, item, moment)
        else:
            shown[key] = item if key in _CONTENT else with_times(item, render)
    return shown


def _iso8601(key: str, value: Any) -> str | None:
    if type(value) is not int or value == 0:
        return None
    if key in _MILLISECONDS:
        return iso8601_ms(value)
    return iso8601(value) if key in _SECONDS else None


def _number_and_iso(key: str, number: int, moment: str) -> dict[str, Any]:
    return {key: number, f"{key}_iso": moment}


def _readable(key: str, number: int, moment: str) -> dict[str, Any]:
    return {key: f"{moment} ({number})"}


def _lines(document: Mapping[str, Any]) -> Iterator[str]:
    for key, value in document.items():
        for element in (value or [None]) if isinstance(value, list) else [value]:
            yield f"{key}: {_plain(element)}"


def _plain(value: Any) -> str:
    if value is None or value == {}:
        return "none"
    if isinstance(value, dict) and not any(isinstance(item, dict) for item in value.values()):
        return " ".join(f"{key}={_plain(item)}" for key, item in value.items())
    return value if isinstance(value, str) else json.dumps(value, sort_keys=True)


class Pulse:
    """When progress lines are due: the time of the last one, and how long after it the next."""

    def __init__(self, every_sec: float = _HEARTBEAT_SEC) -> None:
        self.said = time.monotonic()
        self.every_sec = every_sec


def watching() -> Watch:
    """Progress of a work of many parts: elsewhere than on a terminal, a line every ten seconds,
    however short each part is.
    """
    pulse = Pulse()
    return lambda what, unit: progress(what, unit, pulse)


@contextmanager
def progress(what: str, unit: str = "bytes", pulse: Pulse | None = None) -> Iterator[Progress]:
    """A progress bar on a terminal, a line every ten seconds elsewhere, nothing with --json."""
    if global_options().quiet or global_options().json:
        yield no_progress
    elif sys.stderr.isatty():
        with _bar(what, unit) as report:
            yield report
    else:
        yield _Heartbeat(what, unit, pulse or Pulse())


class _Heartbeat:
    def __init__(self, what: str, unit: str, pulse: Pulse) -> None:
        self._what = what
        self._unit = unit
        self._pulse = pulse
        self._begun = time.monotonic()

    def __call__(self, done: int, total: int | None) -> None:
        now = time.monotonic()
        if now - self._pulse.said >= self._pulse.every_sec:
            self._pulse.said = now
            of = f" of {total}" if total is not None else ""
            rate = pace(done, total, max(now - self._begun, _SHORTEST_SEC))
            typer.echo(f"{self._what}: {done}{of} {self._unit}, {rate}", err=True)


def pace(done: int, total: int | None, seconds: float) -> str:
    """The rate, and the remaining time at that rate."""
    rate = done / seconds
    left = f", {(total - done) / rate:.0f} s left" if total is not None and rate else ""
    return f"{rate:.3g}/s{left}" if rate < _MANY else f"{rate:.0f}/s{left}"


@contextmanager
def _bar(what: str, unit: str) -> Iterator[Progress]:
    # Imported only for a terminal, since it takes a tenth of a second.
    from rich import progress as rich_progress  # noqa: PLC0415
    from rich.console import Console  # noqa: PLC0415

    columns = (
        rich_progress.TextColumn("{task.description}"),
        rich_progress.BarColumn(),
        rich_progress.MofNCompleteColumn(),
        rich_progress.TextColumn(unit),
        rich_progress.TextColumn("{task.fields[pace]}"),
        rich_progress.TimeRemainingColumn(),
    )
    console = Console(stderr=True)
    with rich_progress.Progress(
        *columns, console=console, redirect_stdout=False, redirect_stderr=False
    ) as bar:
        task, begun = bar.add_task(what, total=None, pace=""), time.monotonic()

        def report(done: int, total: int | None) -> None:
            detail = pace(done, None, max(time.monotonic() - begun, _SHORTEST_SEC))
            bar.update(task, completed=done, total=total, pace=detail)

        yield report
