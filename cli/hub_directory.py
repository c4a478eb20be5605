"""``veen hub``, the commands for a data directory and what it proves: check, mend, keep, rotate."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Final

import typer

from cli.console import manner, progress, show
from cli.failure import INTEGRITY, Refused
from cli.hub_status import app
from cli.options import (
    DEFAULT_DATA_DIR,
    ConfigOption,
    DataDirOption,
    HubOptions,
    StreamOption,
    key_in_hex,
)
from hub.fsck import verify as fsck
from hub.settings import load
from hub.storage import identity, retention
from hub.storage.datadir import DataDir, Lock
from hub.storage.index import last_hub_ts
from hub.storage.rebuild import rebuild as rebuild_derived
from veen import label as labels
from veen.audit.report import Report
from veen.checkpoint import Checkpoint
from veen.errors import Untrusted
from veen.stream import stream_id

__all__ = ["app"]

_SHOWN_FAULTS: Final = 20


@app.command()
def verify(data_dir: DataDirOption = DEFAULT_DATA_DIR, config: ConfigOption = None) -> None:
    """Check every byte of a stopped hub's directory.

    Exit code 3 says that something is wrong, and the first bad byte is named.

    Example: veen hub verify --data-dir ./hub --config hub.toml
    """
    settings = load(config)
    with progress("verify") as report:
        found = fsck.verify(
            DataDir(data_dir.resolve()),
            limits=settings.limits,
            profiles=settings.profiles,
            streams=settings.streams,
            progress=report,
        )
    _show(found)
    if not found.ok and manner().json:
        raise typer.Exit(INTEGRITY)
    if not found.ok:
        raise Untrusted(_blame(found))


@app.command()
def rebuild(data_dir: DataDirOption = DEFAULT_DATA_DIR, config: ConfigOption = None) -> None:
    """Make the derived state of a stopped hub again from its log.

    Example: veen hub rebuild --data-dir ./hub --config hub.toml
    """
    settings = load(config)
    with progress("rebuild") as report:
        found = rebuild_derived(
            DataDir(data_dir.resolve()),
            limits=settings.limits,
            streams=settings.streams,
            progress=report,
        )
    show(
        {
            "labels": found.labels,
            "entries": found.entries,
            "agreed": found.agreed,
            "differed": list(found.differed),
            "set_aside": list(found.set_aside),
        }
    )


@app.command("retention")
def retain(
    data_dir: DataDirOption = DEFAULT_DATA_DIR,
    config: ConfigOption = None,
    prune: Annotated[
        bool, typer.Option("--prune", help="Take the chunks away; the hub must be stopped.")
    ] = False,
    move_to: Annotated[
        Path | None, typer.Option("--move-to", metavar="DIR", help="Copy them here first.")
    ] = None,
) -> None:
    """Show which sealed chunks retention lets go; with --prune, let them go.

    Checkpoints, peaks, summaries and what proofs need always stay. Age is measured by hub time: no
    later than the latest message of the hub, so that a clock that is ahead lets nothing go early.

    Example: veen hub retention --data-dir ./hub --config hub.toml --prune --move-to ./attic
    """
    settings, datadir = load(config), DataDir(data_dir.resolve())
    if not datadir.log.is_dir():
        raise Refused(f"{datadir.root} is not a data directory: it has no log")
    now = retention.hub_time(datadir, int(time.time()))
    due = retention.plan(datadir, settings.retention, settings.streams, now)
    done = (
        retention.prune(datadir, due, limits=settings.limits, move_to=move_to, now=now)
        if prune
        else []
    )
    rules = {rule.pattern: rule.keep_days or retention.LONG_TERM for rule in settings.retention}
    names = [f"{one.label.hex()} {one.start_seq}-{one.end_seq}" for one in due]
    show({"rules": rules, "default": retention.LONG_TERM, "due": names, "pruned": len(done)})


@app.command()
def checkpoint(
    at: HubOptions,
    stream: StreamOption,
    upto: Annotated[int, typer.Option("--upto", metavar="SEQ", help="The place it ends at.")],
    out: Annotated[
        Path | None, typer.Option("--out", metavar="FILE", help="Write the CHECKPOINT here.")
    ] = None,
) -> None:
    """Have a checkpoint made (or fetch it) and check the hub's signature on it.

    It works for streams without epochs.

    Example: veen hub checkpoint --stream record/line-1 --upto 10 --token-file token --out cp.cbor
    """
    hub = at.status().identity()
    name = labels.label(labels.routing_key(hub.hub_id), stream_id(stream), 0)
    with at.open() as api:
        found = api.checkpoint(name, upto)
    if (found.label_curr, found.upto_seq) != (name, upto):
        raise Untrusted("the hub answered with another checkpoint than was asked for")
    if not any(found.is_signed_by(key.hub_pk) for key in hub.hub_keys):
        raise Untrusted("the checkpoint is not signed by a key of the hub")
    if out is not None:
        out.write_bytes(found.encode())
    show(
        {
            "label": name.hex(),
            "upto_seq": found.upto_seq,
            "mmr_root": found.mmr_root.hex(),
            "epoch": found.epoch,
        }
    )


@app.command("rotate-key")
def rotate_key(
    data_dir: DataDirOption = DEFAULT_DATA_DIR,
    overlap_sec: Annotated[
        int,
        typer.Option(min=0, metavar="N", help="How long the old key still witnesses checkpoints."),
    ] = 86_400,
) -> None:
    """Give a stopped hub a new key; its name, labels and old receipts stay valid.

    Example: veen hub rotate-key --data-dir ./hub
    """
    datadir = DataDir(data_dir.resolve())
    lock = Lock(datadir)
    try:
        now = max(int(time.time()), last_hub_ts(datadir))
        keys = identity.rotate(datadir, os.urandom, now, overlap_sec)
    finally:
        lock.release()
    current = keys.identity.current
    show(
        {
            "hub_id": keys.hub_id.hex(),
            "hub_pk": current.hub_pk.hex(),
            "key_id": current.key_id.hex(),
        }
    )


@app.command("verify-rotation")
def verify_rotation(
    checkpoint: Annotated[
        Path, typer.Option("--checkpoint", metavar="FILE", help="A checkpoint of the hub.")
    ],
    old_key: Annotated[str, typer.Option(metavar="HEX", help="The old hub_pk.")],
    new_key: Annotated[str, typer.Option(metavar="HEX", help="The new hub_pk.")],
) -> None:
    """Check that a checkpoint of the overlap is witnessed by both keys.

    Example: veen hub verify-rotation --checkpoint cp.cbor --old-key d36a… --new-key efb3…
    """
    found = Checkpoint.decode(checkpoint.read_bytes())
    for name, public in (("old", old_key), ("new", new_key)):
        if not found.is_witnessed_by(key_in_hex(f"--{name}-key", public)):
            raise Untrusted(f"{checkpoint.name} is not witnessed by the {name} key")
    if not found.is_signed_by(key_in_hex("--new-key", new_key)):
        raise Untrusted(f"{checkpoint.name} is not signed by the new key")
    show(
        {"checkpoint": str(checkpoint), "upto_seq": found.upto_seq},
        f"{checkpoint.name}: signed by the new key, witnessed by both",
    )


def _show(found: Report) -> None:
    document = json.loads(found.to_json())
    if not found.ok:
        document |= {"code": "FAULTS", "detail": _blame(found)}
    show(document, "\n".join(_report(found)))


def _report(found: Report) -> Iterator[str]:
    for fault in found.faults[:_SHOWN_FAULTS]:
        yield f"FAULT {fault.file} at byte {fault.offset}: {fault.what} [{fault.code}]"
    yield from (*found.derived, *found.notes)
    yield (
        f"{found.entries} entries in {found.chunks} chunks of {found.labels} labels, "
        f"{found.checkpoints} checkpoints: {len(found.faults)} faults"
    )


def _blame(found: Report) -> str:
    first = found.faults[0]
    return f"{len(found.faults)} faults, the first in {first.file} at byte {first.offset}"
