"""``veen recorder replay``: what was recorded, in order and proven, and the check of an output."""

from __future__ import annotations

import sys
from enum import Enum
from pathlib import Path
from typing import Annotated, Any

import typer

from cli.console import notice, progress, show
from cli.pinned_hub import KnownHubOptions, end_unproven, own_identity
from cli.replay_options import ReaderOptions, WantedOptions
from recorder.replay import check, output
from recorder.replay.job import Job, Replayed
from recorder.replay.plan import Plan
from recorder.replay.source import HubSource
from veen.errors import Malformed
from veen.identity_file import SignedIdentity
from veen.recorder_checkpoint import RecorderCheckpoint


class Format(Enum):
    JSONL = "jsonl"
    CBOR = "cbor"
    PARQUET = "parquet"


def replay(
    at: ReaderOptions,
    what: WantedOptions,
    known: KnownHubOptions,
    checkpoint: Annotated[
        Path | None,
        typer.Option("--checkpoint", metavar="FILE", help="Prove against this; else the latest."),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="PATH", help="A file, or for Parquet a directory."),
    ] = None,
    format_: Annotated[
        Format, typer.Option("--format", help="JSON lines, a CBOR sequence, or Parquet files.")
    ] = Format.JSONL,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on where an output was cut off.")
    ] = False,
    verify: Annotated[
        Path | None,
        typer.Option("--verify", metavar="FILE", help="Check an output instead, without a hub."),
    ] = None,
) -> None:
    """Replay recorded events in order, each proven against a checkpoint by the reader.

    Example: veen recorder replay --stream record/app --start 2026-01-31T08:00:00Z --out app.jsonl
    """
    given = _read_checkpoint(checkpoint)
    if verify is not None:
        _check(verify, at, given, known)
    elif out is None and (resume or format_ is Format.PARQUET):
        raise typer.BadParameter("--resume and --format parquet need --out")
    elif format_ is Format.PARQUET and what.with_proofs:
        raise typer.BadParameter(
            "--with-proofs goes with jsonl and cbor: Parquet has no place for them"
        )
    else:
        _replay(at, what, given, out, format_, resume=resume)


def _replay(
    at: ReaderOptions,
    what: WantedOptions,
    given: RecorderCheckpoint | None,
    out: Path | None,
    format_: Format,
    *,
    resume: bool,
) -> None:
    with at.open() as client, progress("replay", "messages") as report:
        job = Job(
            source=HubSource(client),
            wanted=what.wanted,
            latest=client.session.api.recorder_checkpoint_latest,
            chosen=given,
            progress=report,
        )
        if out is None:
            found = job.to_pipe(sys.stdout.buffer, output.form_named(format_.value))
            notice(_summary(found))
        elif format_ is Format.PARQUET:
            _show(job.to_parts(out, resume=resume), out)
        else:
            form = output.form_named(format_.value)
            _show(job.to_file(out, form, resume=resume), out)


def _check(
    path: Path, at: ReaderOptions, checkpoint: RecorderCheckpoint | None, known: KnownHubOptions
) -> None:
    hub_id = at.pinned()
    newest = at.newest(hub_id, known)
    with progress("verify", "messages") as report:
        found = check.check_file(path, hub_id, checkpoint, report, newest)
    known.learn(SignedIdentity(found.plan.hub, found.plan.hub_sig))
    show(
        {
            "ok": newest is not None,
            "file": str(path),
            "hub_id": found.hub.hub_id.hex(),
            "hub_identity": found.hub.number,
            "hub_identity_since": found.hub.current.valid_from,
            "hub_identity_known": newest is not None,
            "checkpoint_id": found.plan.checkpoint_id.hex(),
            "proven": found.proven,
            "unproven": found.unproven,
            "kinds": found.kinds,
            "only_told": found.told,
            "streams": _streams(found.plan),
        }
    )
    if newest is None:
        end_unproven(f"{path} is {own_identity('the output', found.hub)}")


def _show(found: Replayed, out: Path) -> None:
    show(
        {
            "out": str(out),
            "hub_id": found.plan.hub.hub_id.hex(),
            "checkpoint_id": found.plan.checkpoint_id.hex(),
            "messages": found.plan.count,
            "new": found.new,
            "kinds": found.kinds,
            "opened": found.plan.wanted.opened,
            "streams": _streams(found.plan),
        }
    )


def _streams(plan: Plan) -> list[dict[str, Any]]:
    return [
        {
            "stream": one.stream,
            "from": one.from_seq,
            "to": one.to_seq,
            "proven_to": min(one.to_seq, one.proven_to),
        }
        for one in plan.stretches
    ]


def _summary(found: Replayed) -> str:
    closed = "" if found.plan.wanted.opened else "; nothing was opened: receipts and hashes only"
    checkpoint = found.plan.checkpoint_id.hex()
    return f"{found.new} messages, proven against checkpoint {checkpoint}{closed}"


def _read_checkpoint(path: Path | None) -> RecorderCheckpoint | None:
    if path is None:
        return None
    try:
        return RecorderCheckpoint.decode(path.read_bytes())
    except Malformed as error:
        raise Malformed(f"{path} is no recorder checkpoint: {error}") from error
