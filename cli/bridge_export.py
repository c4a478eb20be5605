"""``veen bridge export`` and ``inspect``: write carriers to a medium, and show their contents."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from bridge.bundle import BundleEvent, BundleLimits, BundleSource, read_events, survey
from bridge.carrier.directory import BagPath
from bridge.carrier.format import Carrier, CarrierLedger
from bridge.carrier.medium import carriers
from bridge.carrier.probe import probe
from bridge.carrier.reader import CarrierSet, unpacked
from bridge.carrier.verify import UNREADABLE, age_text
from bridge.errors import CarrierRefused
from bridge.exporter.build import Unopened
from bridge.exporter.deliver import Media, medium_id
from bridge.exporter.gaps import ExportGap, GapFile
from bridge.exporter.run import ExportedCarrier, Exporter, ExportSetup, opened
from bridge.settings import DEFAULT_PATH, BridgeSettings, load
from cli.bridge_options import (
    NOTHING_TO_DO,
    BagsArgument,
    BridgeConfigOption,
    OperatorOption,
    ZoneKeyOption,
    operator_of,
    zone_keys,
)
from cli.bridge_verify import ScratchOption, room
from cli.console import global_options, notice, progress, show, show_text, watching
from cli.errors import INTEGRITY, stoppable
from cli.options import retry_policy, runtime
from veen.errors import VeenError
from veen.receipt import Receipt

_STOPPED: Final = (
    "stopped; what was begun does not count yet: run veen bridge export again, which finishes it"
)
_RANGE: Final = re.compile(r"(.+)=([0-9]{1,18})\.\.([0-9]{1,18})")


@dataclass(frozen=True, slots=True, kw_only=True)
class MediumOptions:
    """The media for carriers, and the operator."""

    medium: Annotated[
        list[Path],
        typer.Option("--medium", metavar="DIR", help="Mounted medium; repeatable for a set."),
    ]
    medium_id: Annotated[
        str | None,
        typer.Option("--medium-id", metavar="TEXT", help="Label on the medium."),
    ] = None
    discard_unfinished: Annotated[
        bool, typer.Option("--discard-unfinished", help="Remove an unfinished carrier.")
    ] = False
    probe: Annotated[
        bool, typer.Option("--probe", help="First test that the media have their claimed capacity.")
    ] = False
    operator: OperatorOption = None
    workers: Annotated[
        int, typer.Option("--workers", min=1, metavar="N", help="Number of verifying processes.")
    ] = 1

    def run(self, streams: Sequence[str]) -> ExportSetup:
        roots = tuple(item.absolute() for item in self.medium)
        return ExportSetup(
            media=Media(
                roots=roots,
                medium_id=self.medium_id or medium_id(roots),
                discard_unfinished=self.discard_unfinished,
            ),
            operator=operator_of(self.operator),
            runtime=runtime(),
            now_ms=lambda: time.time_ns() // 1_000_000,
            retry_policy=retry_policy(),
            streams=tuple(streams),
            workers=self.workers,
            watch=watching(),
        )


def export(
    to: MediumOptions,
    config: BridgeConfigOption = DEFAULT_PATH,
    stream: Annotated[
        list[str] | None,
        typer.Option("--stream", metavar="NAME", help="Stream; repeatable. Default: all."),
    ] = None,
    range_: Annotated[
        list[str] | None,
        typer.Option("--range", metavar="NAME=FROM..TO", help="Export these events again."),
    ] = None,
    from_gap_file: Annotated[
        Path | None,
        typer.Option(
            "--from-gap-file", metavar="FILE", help="Export the events of a gap file again."
        ),
    ] = None,
    heartbeat: Annotated[
        bool,
        typer.Option(
            "--heartbeat", help="Write a carrier without events, with the head of every stream."
        ),
    ] = False,
) -> None:
    """Export new events to carriers, up to the latest recorder checkpoint.

    A carrier is complete once it was read back from the medium, signed, and recorded in
    bridge/online/log. The command is idempotent: after an interruption run it again, and
    unfinished carriers are completed first, with the same bytes. Exits with 6 if there is nothing
    to export.

    With --range or --from-gap-file the bundles of these events are written again, byte for byte,
    and nothing new is exported.

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
            done.extend(_describe(item) for item in _work(exporter, gaps, heartbeat))
        except VeenError:
            # A stream may fail while others are on the medium: these are shown nevertheless.
            if done:
                _show(run, done)
            raise
    _show(run, done)
    if not done:
        raise typer.Exit(NOTHING_TO_DO)


def _show(run: ExportSetup, done: list[dict[str, Any]]) -> None:
    count = sum(item["count"] for item in done)
    text = f"{len(done)} carriers with {count} events on {run.media.medium_id}"
    show(
        {"medium": run.media.medium_id, "carriers": done, "events": count},
        f"{text}; unmount it, and check it with veen bridge verify" if done else "nothing to do",
    )


def _probe(run: ExportSetup) -> None:
    for medium in dict.fromkeys(run.media.roots):
        with progress(f"probing {medium}", "bytes") as report:
            probe(medium, run.runtime.random(32), report)


def _work(
    exporter: Exporter, gaps: list[ExportGap] | None, heartbeat: bool
) -> Iterator[ExportedCarrier]:
    if gaps is not None:
        return exporter.again(gaps)
    return exporter.heartbeat() if heartbeat else exporter.export()


def _describe(carrier: ExportedCarrier) -> dict[str, Any]:
    entry = carrier.entry
    count = entry.to_seq - entry.from_seq + 1 if entry.bundle_id else 0
    what = f"{entry.stream} {entry.from_seq} to {entry.to_seq}" if count else "heartbeat"
    again = ", which was there already" if carrier.is_again else ""
    if not global_options().json:
        show_text(f"{entry.n}: {what} in {bag}{again}" for bag in carrier.bags)
        show_text(_unopened(entry.stream, carrier.unopened))
    return {
        "n": entry.n,
        "bundle_id": entry.bundle_id.hex() if entry.bundle_id else None,
        "stream": entry.stream or None,
        "from_seq": entry.from_seq,
        "to_seq": entry.to_seq,
        "count": count,
        "bags": [str(bag) for bag in carrier.bags],
        "is_again": carrier.is_again,
        "sealed": carrier.unopened.count,
        "invalid": carrier.unopened.bad,
    }


def _unopened(stream: str, unopened: Unopened) -> Iterator[str]:
    """Warn of events that no key opens, which are exported as they are."""
    if unopened.bad:
        yield f"   {unopened.bad} of these no key opens; they are carried sealed:"
    for stream_seq, reason in unopened.first:
        yield f"   {stream} {stream_seq}: {reason}"
    if unopened.bad > len(unopened.first):
        yield f"   and {unopened.bad - len(unopened.first)} more"


def _gaps(
    settings: BridgeSettings, ranges: list[str] | None, file: Path | None
) -> list[ExportGap] | None:
    """The ranges to export again; None to export new events."""
    if not ranges and file is None:
        return None
    gaps = [_range(range_) for range_ in ranges or ()]
    if file is not None:
        listed = GapFile.read(file)
        if listed.source_hub_id != settings.hub.hub_id:
            raise typer.BadParameter(
                f"{file}: expected gaps of hub {settings.hub.hub_id.hex()} of this zone, "
                f"got those of hub {listed.source_hub_id.hex()}"
            )
        gaps += listed.gaps
    for item in gaps:
        settings.streams.route(settings.hub.hub_id, item.stream)
    return gaps


def _range(text: str) -> ExportGap:
    match = _RANGE.fullmatch(text)
    if match is None or not 1 <= int(match[2]) <= int(match[3]):
        raise typer.BadParameter(f"--range {text!r}: expected NAME=FROM..TO, like export/a=5..9")
    return ExportGap(match[1], int(match[2]), int(match[3]))


def inspect(
    bags: BagsArgument,
    events: Annotated[
        int, typer.Option("--events", min=0, metavar="N", help="Also show this many events.")
    ] = 0,
    key: ZoneKeyOption = None,
    scratch: ScratchOption = None,
) -> None:
    """Show the contents of carriers or bundle files, without verification.

    Only the hashes of volumes are checked; use veen bridge verify for signatures and proofs. A
    carrier that cannot be read is listed as refused, and the exit code is 3.

    Example: veen bridge inspect /media/usb --events 3 --json
    """
    files = [bag for bag in bags if bag.is_file()]
    folders = [bag.absolute() for bag in bags if not bag.is_file()]
    now = runtime().clock()
    shown: list[dict[str, Any]] = []
    for file in files:
        with file.open("rb") as source:
            shown.append({"file": str(file), "bundle": _bundle(source, events, now)})
    with room(scratch) as place:
        look = _Look(zone_keys(key), place, events, now)
        carrier_sets = carriers(folders) if folders else []
        shown += [_judged(some, look) for some in carrier_sets]
    notice("nothing of this was verified; see veen bridge verify")
    refused = sum("refused" in item for item in shown)
    show({"carriers": shown} | ({"ok": False} if refused else {}))
    if refused:
        if not global_options().json:
            typer.echo(f"veen: {refused} of {len(shown)} carriers cannot be read", err=True)
        raise typer.Exit(INTEGRITY)


@dataclass(frozen=True, slots=True)
class _Look:
    """The keys, the number of events to show, and the time."""

    privates: tuple[bytes, ...]
    place: Path
    events: int
    now: int


def _judged(bags: tuple[BagPath, ...], look: _Look) -> dict[str, Any]:
    """Show a carrier; an unreadable carrier is shown as refused, and does not hide the others."""
    try:
        return _carrier(bags, look)
    except CarrierRefused as error:
        return {"bags": [str(bag) for bag in bags], "refused": str(error)}
    except OSError as error:
        if error.errno not in UNREADABLE:
            raise
        return {"bags": [str(bag) for bag in bags], "refused": f"unreadable: {error.strerror}"}


def _carrier(bags: tuple[BagPath, ...], look: _Look) -> dict[str, Any]:
    with CarrierSet(bags) as carrier_set:
        carrier = carrier_set.carrier
        shown = {"bags": [str(bag) for bag in bags], **_table(carrier)}
        if carrier.encryption is not None and not look.privates:
            return {**shown, "ledger": None, "bundle": "sealed; give --key to look inside"}
        carrier_set.verify_complete()
        carrier_set.verify_intact(progress)
        stored = carrier_set.stored(look.place, progress)
        with unpacked(carrier, stored, look.privates, look.place, watch=progress) as cargo:
            is_bundle = cargo.ledger.tail[-1].bundle_id is not None
            inside = _bundle(cargo.content, look.events, look.now) if is_bundle else "heartbeat"
            return {**shown, "ledger": _ledger(cargo.ledger), "bundle": inside}


def _table(carrier: Carrier) -> dict[str, Any]:
    packed, sealed = carrier.compression, carrier.encryption
    return {
        "tool": carrier.tool,
        "format": carrier.ver,
        "set_id": carrier.set_id.hex(),
        "media": carrier.bags,
        "data_volumes": carrier.data,
        "parity_volumes": carrier.parity,
        "stored_bytes": carrier.stored_len,
        "compression": packed.alg if packed else None,
        "sealed_to": sealed.recipient.hex() if sealed else None,
    }


def _ledger(ledger: CarrierLedger) -> dict[str, Any]:
    return {
        "bridge_id": ledger.bridge_id.hex(),
        "entries": [
            {
                "n": item.n,
                "bundle_id": item.bundle_id.hex() if item.bundle_id else None,
                "stream": item.stream or None,
                "from_seq": item.from_seq,
                "to_seq": item.to_seq,
                "checkpoint_id": item.checkpoint_id.hex(),
            }
            for item in ledger.tail
        ],
    }


def _bundle(source: BundleSource, events: int, now: int) -> dict[str, Any]:
    bundle = survey(source, BundleLimits())
    header = bundle.header
    checkpoint = header.export_checkpoint
    return {
        "bundle_id": header.bundle_id.hex() if header.bundle_id else None,
        "source_hub_id": header.source_hub_id.hex(),
        "source_profile_id": header.source_profile_id.hex(),
        "stream": header.export_stream,
        "from_seq": header.export_seq_from,
        "to_seq": header.export_seq_to,
        "time_from": header.export_time_from,
        "time_to": header.export_time_to,
        "checkpoint_id": checkpoint.checkpoint_id.hex(),
        "checkpoint_at": checkpoint.created_at,
        "checkpoint_age": age_text(now - checkpoint.created_at),
        "bytes": bundle.size,
        "events": [_event(event) for event in islice(read_events(source, bundle), events)],
    }


def _event(event: BundleEvent) -> dict[str, Any]:
    receipt, detail = Receipt.decode(event.receipt), event.metadata
    return {
        "seq": receipt.stream_seq,
        "leaf_hash": receipt.leaf_hash.hex(),
        "hub_commit_time": receipt.hub_ts,
        "is_disclosed": event.body_key is not None,
        "event_type": detail.event_type if detail else None,
        "subject_id": detail.subject_id if detail else None,
        "principal_id": detail.principal_id.hex() if detail else None,
        "event_time": detail.event_time if detail else None,
        "origin": detail.origin if detail else None,
    }
