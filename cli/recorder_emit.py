"""``veen recorder emit`` and ``tail``: record events, or the lines of a log file."""

from __future__ import annotations

import os
import sys
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, BinaryIO

import typer

from cli.console import notice, show
from cli.recorder_options import RecorderOptions
from recorder.emit.emitter import Emitter, Observation
from recorder.emit.json_lines import LineForm, emit_lines, lines_of
from recorder.emit.tail import FileTail, OnBadLine, TailRules, TailRun
from recorder.timestamp import TimeUnit, event_time
from veen.errors import Malformed
from veen.system.signals import interruptible_sleep
from veen.wire.canonical_json import parse_json

_POLL_SEC = 0.2


@dataclass(frozen=True, slots=True, kw_only=True)
class DefaultOptions:
    """Defaults for fields that an event does not have."""

    event_type: Annotated[
        str | None, typer.Option("--type", metavar="TYPE", help="event_type.")
    ] = None
    subject: Annotated[
        str | None, typer.Option("--subject", metavar="ID", help="subject_id: who did it.")
    ] = None
    origin: Annotated[
        str | None, typer.Option("--origin", metavar="NAME", help="Service of origin.")
    ] = None


def emit(
    at: RecorderOptions,
    said: DefaultOptions,
    payload: Annotated[
        str | None, typer.Option("--payload", metavar="JSON", help="Payload of one event, as JSON.")
    ] = None,
    at_time: Annotated[
        str | None, typer.Option("--time", metavar="TIME", help="event_time; default: now.")
    ] = None,
    file: Annotated[
        Path | None,
        typer.Option("--file", metavar="FILE", help="File of JSON lines; - reads stdin."),
    ] = None,
    from_line: Annotated[
        int, typer.Option("--from-line", min=1, metavar="N", help="Skip the lines before this one.")
    ] = 1,
) -> None:
    """Record one event, or one event per line of JSON.

    A line is {"event_type", "subject_id", "origin", "event_time", "payload"}; event_time, in ms or
    like 2025-11-19T03:20:00.000Z, is optional, and so is what an option gives. The first invalid
    line ends the command; all before it are recorded. Continue with --from-line N.

    Example: veen recorder emit --type order.placed --subject u:7 --origin shop --payload '{"n":1}'
    """
    if (payload is None) == (file is None):
        raise typer.BadParameter("give one of --payload JSON, --file FILE and --file -")
    if payload is None and at_time is not None:
        raise typer.BadParameter("--time needs --payload; lines carry their own event_time")
    settings = at.settings()
    with at.emitter(settings) as emitter:
        if payload is not None:
            _emit_one(emitter, said, payload, at_time)
        else:
            _emit_lines(emitter, said, file or Path(), from_line)


def _emit_one(emitter: Emitter, said: DefaultOptions, payload: str, at_time: str | None) -> None:
    if said.event_type is None or said.subject is None or said.origin is None:
        raise typer.BadParameter("one event needs --type, --subject and --origin")
    try:
        value = parse_json(os.fsencode(payload))
    except Malformed as error:
        raise typer.BadParameter(f"--payload: {error}") from error
    observed = Observation(
        event_type=said.event_type,
        subject_id=said.subject,
        origin=said.origin,
        payload=value,
        event_time=None if at_time is None else event_time(at_time, TimeUnit.MS),
    )
    stream = emitter.streams.stream_of(observed.event_type).name
    sent = emitter.send(observed)
    show(
        {
            "stream": stream,
            "stream_seq": sent.receipt.stream_seq,
            "hub_ts": sent.receipt.hub_ts,
            "receipt_id": f"rcpt-{sent.receipt.leaf_hash.hex()}",
        }
    )


def _emit_lines(emitter: Emitter, said: DefaultOptions, file: Path, from_line: int) -> None:
    form = LineForm(
        default_type=said.event_type,
        default_subject=said.subject,
        default_origin=said.origin,
    )
    source: Any = nullcontext(sys.stdin.buffer) if file == Path("-") else file.open("rb")
    with source as lines:
        readable: BinaryIO = lines
        emitted = emit_lines(emitter, lines_of(readable, from_line), form)
    show(
        {
            "stored": emitted.stored,
            "acknowledged": emitted.acknowledged,
            "pending": emitter.pending(),
        }
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class FieldOptions:
    """The names of the fields of a line; all others are the payload."""

    type_field: Annotated[
        str, typer.Option("--type-field", metavar="NAME", help="Field of the event_type.")
    ] = "event_type"
    subject_field: Annotated[
        str, typer.Option("--subject-field", metavar="NAME", help="Field of the subject_id.")
    ] = "subject_id"
    origin_field: Annotated[
        str, typer.Option("--origin-field", metavar="NAME", help="Field of the origin.")
    ] = "origin"
    time_field: Annotated[
        str, typer.Option("--time-field", metavar="NAME", help="Field of the event_time.")
    ] = "event_time"
    time_unit: Annotated[
        TimeUnit, typer.Option("--time-unit", help="Unit of a numeric event_time.")
    ] = TimeUnit.MS
    payload_field: Annotated[
        str | None,
        typer.Option(
            "--payload-field", metavar="NAME", help="Field of the payload; default: all others."
        ),
    ] = None

    def form(self, said: DefaultOptions) -> LineForm:
        return LineForm(
            event_type=self.type_field,
            subject_id=self.subject_field,
            origin=self.origin_field,
            event_time=self.time_field,
            payload=self.payload_field,
            time_unit=self.time_unit,
            default_type=said.event_type,
            default_subject=said.subject,
            default_origin=said.origin,
        )


def tail(
    at: RecorderOptions,
    said: DefaultOptions,
    fields: FieldOptions,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Log file of JSON lines.")],
    on_bad_line: Annotated[
        OnBadLine, typer.Option("--on-bad-line", help="Stop, or record it as log.unparsed.")
    ] = OnBadLine.STOP,
    once: Annotated[bool, typer.Option("--once", help="Exit when all lines are sent.")] = False,
    accept_gap: Annotated[
        bool, typer.Option("--accept-gap", help="Continue although the file that was read is gone.")
    ] = False,
    settle_ms: Annotated[
        int,
        typer.Option(
            "--settle-ms",
            min=0,
            metavar="N",
            help="Idle time after which a rotated file is complete.",
        ),
    ] = 2_000,
) -> None:
    """Follow a log file across rotations and crashes; record each line exactly once.

    Starts at the beginning of the file, and resumes where it stopped, by configuration, client and
    file name. Rotated files must stay in the same directory, uncompressed, until they are read.

    Example: veen recorder tail /var/log/shop.json --origin shop --subject service:shop
    """
    settings = at.settings()
    path = file.absolute()
    rules = TailRules(
        form=fields.form(said),
        subject_id=said.subject or f"file:{path.name}",
        origin=said.origin or path.name,
        on_bad_line=on_bad_line,
        settle_ms=settle_ms,
        accept_gap=accept_gap,
    )
    with at.emitter(settings) as emitter:
        follower = FileTail(path, f"tail/{settings.hub.hub_id.hex()}/{path}", emitter, rules)
        run = TailRun(follower, emitter, notice)
        if once:
            progress = run.catch_up(interruptible_sleep, _POLL_SEC)
            show(
                {
                    "events": progress.events,
                    "acknowledged": progress.acknowledged,
                    "pending": emitter.pending(),
                }
            )
        else:
            run.follow(interruptible_sleep, _POLL_SEC)
