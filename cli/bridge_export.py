"""``veen bridge export``: bring what is new to a medium, or bring again what was lost."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from bridge.carrier.probe import probe
from bridge.export_delivery import Media, medium_id
from bridge.export_gaps import Gap, GapFile
from bridge.export_run import Exported, Exporter
from bridge.export_setup import Run, opened
from bridge.exporter import Unopened
from bridge.settings import DEFAULT_PATH, Settings, load
from cli.bridge_options import NOTHING_TO_DO, BridgeConfigOption, OperatorOption, operator_of
from cli.console import manner, progress, show, show_text, watching
from cli.failure import stoppable
from cli.options import patience, surroundings
from veen.errors import VeenError

_STOPPED: Final = (
    "stopped; what was begun does not count yet: run veen bridge export again, which finishes it"
)
_RANGE: Final = re.compile(r"(.+)=([0-9]{1,18})\.\.([0-9]{1,18})")


@dataclass(frozen=True, slots=True, kw_only=True)
class MediumOptions:
    """Where carriers go, and who brings them there."""

    medium: Annotated[
        list[Path],
        typer.Option("--medium", metavar="DIR", help="A mounted medium; repeat for a set."),
    ]
    medium_id: Annotated[
        str | None,
        typer.Option("--medium-id", metavar="TEXT", help="What is written on the medium."),
    ] = None
    discard_unfinished: Annotated[
        bool, typer.Option("--discard-unfinished", help="Remove a carrier that was never finished.")
    ] = False
    probe: Annotated[
        bool, typer.Option("--probe", help="First try whether the media have the room they claim.")
    ] = False
    operator: OperatorOption = None
    workers: Annotated[
        int, typer.Option("--workers", min=1, metavar="N", help="Processes that verify.")
    ] = 1

    def run(self, streams: Sequence[str]) -> Run:
        roots = tuple(one.absolute() for one in self.medium)
        return Run(
            media=Media(
                roots=roots,
                medium_id=self.medium_id or medium_id(roots),
                discard_unfinished=self.discard_unfinished,
            ),
            operator=operator_of(self.operator),
            surroundings=surroundings(),
            now_ms=lambda: time.time_ns() // 1_000_000,
            patience=patience(),
            streams=tuple(streams),
            workers=self.workers,
            watch=watching(),
        )


def export(
    to: MediumOptions,
    config: BridgeConfigOption = DEFAULT_PATH,
    stream: Annotated[
        list[str] | None, typer.Option("--stream", metavar="NAME", help="Only this; repeatable.")
    ] = None,
    range_: Annotated[
        list[str] | None,
        typer.Option("--range", metavar="NAME=FROM..TO", help="Export again what holds these."),
    ] = None,
    from_gap_file: Annotated[
        Path | None,
        typer.Option("--from-gap-file", metavar="FILE", help="Export again what it names."),
    ] = None,
    heartbeat: Annotated[
        bool, typer.Option("--heartbeat", help="A carrier without events: how far everything is.")
    ] = False,
) -> None:
    """Write carriers with all that is new, up to the hub's last recorder checkpoint.

    A carrier counts once it was read back from the medium, signed, and entered in
    bridge/online/log. Whatever ends this before, run it again: what was begun is finished first,
    with the same bytes. Exit code 6 says that there was nothing to export.

    With --range or --from-gap-file the bundles that hold these events are written again, byte for
    byte as they were, and nothing new is exported.

    Example: veen bridge export --config bridge.toml --medium /media/usb --medium-id USB-17
    """
    settings, run = load(config), to.run(stream or ())
    gaps = _gaps(settings, range_, from_gap_file)
    if heartbeat and gaps is not None:
        raise typer.BadParameter("a heartbeat has no events: leave out --range or --heartbeat")
    with stoppable(_STOPPED), opened(settings, run) as exporter:
        if to.probe:
            _probe(run)
        done: list[dict[str, Any]] = []
        try:
            done.extend(_told(one) for one in _work(exporter, gaps, heartbeat))
        except VeenError:
            # A stream may fail while others are on the medium: these are told of all the same.
            if done:
                _show(run, done)
            raise
    _show(run, done)
    if not done:
        raise typer.Exit(NOTHING_TO_DO)


def _show(run: Run, done: list[dict[str, Any]]) -> None:
    count = sum(one["count"] for one in done)
    text = f"{len(done)} carriers with {count} events on {run.media.medium_id}"
    show(
        {"medium": run.media.medium_id, "carriers": done, "events": count},
        f"{text}; unmount it, and check it with veen bridge verify" if done else "nothing to do",
    )


def _probe(run: Run) -> None:
    for medium in dict.fromkeys(run.media.roots):
        with progress(f"probing {medium}", "bytes") as report:
            probe(medium, run.surroundings.random(32), report)


def _work(exporter: Exporter, gaps: list[Gap] | None, heartbeat: bool) -> Iterator[Exported]:
    if gaps is not None:
        return exporter.again(gaps)
    return exporter.heartbeat() if heartbeat else exporter.export()


def _told(one: Exported) -> dict[str, Any]:
    entry = one.entry
    count = entry.to_seq - entry.from_seq + 1 if entry.bundle_id else 0
    what = f"{entry.stream} {entry.from_seq} to {entry.to_seq}" if count else "heartbeat"
    again = ", which was there already" if one.is_again else ""
    if not manner().json:
        show_text(f"{entry.n}: {what} in {bag}{again}" for bag in one.bags)
        show_text(_unopened(entry.stream, one.unopened))
    return {
        "n": entry.n,
        "bundle_id": entry.bundle_id.hex() if entry.bundle_id else None,
        "stream": entry.stream or None,
        "from_seq": entry.from_seq,
        "to_seq": entry.to_seq,
        "count": count,
        "bags": [str(bag) for bag in one.bags],
        "is_again": one.is_again,
        "sealed": one.unopened.count,
        "invalid": one.unopened.bad,
    }


def _unopened(stream: str, found: Unopened) -> Iterator[str]:
    """Events that no key opens: they travel as they are, and whoever sent them should be found."""
    if found.bad:
        yield f"   {found.bad} of these no key opens; they are carried sealed:"
    for stream_seq, reason in found.first:
        yield f"   {stream} {stream_seq}: {reason}"
    if found.bad > len(found.first):
        yield f"   and {found.bad - len(found.first)} more"


def _gaps(settings: Settings, ranges: list[str] | None, file: Path | None) -> list[Gap] | None:
    """What to export again; None where new events are wanted."""
    if not ranges and file is None:
        return None
    found = [_range(one) for one in ranges or ()]
    if file is not None:
        listed = GapFile.read(file)
        if listed.source_hub_id != settings.hub.hub_id:
            raise typer.BadParameter(
                f"{file} is about hub {listed.source_hub_id.hex()}, not about the hub of this zone"
            )
        found += listed.gaps
    for one in found:
        settings.streams.route(settings.hub.hub_id, one.stream)
    return found


def _range(text: str) -> Gap:
    found = _RANGE.fullmatch(text)
    if found is None or not 1 <= int(found[2]) <= int(found[3]):
        raise typer.BadParameter(f"--range {text!r}: NAME=FROM..TO is due, like export/a=5..9")
    return Gap(found[1], int(found[2]), int(found[3]))
