"""``veen hub``, commands for a data directory: verify, rebuild, retention, key rotation."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Final

import typer

from cli.console import global_options, progress, show
from cli.errors import INTEGRITY
from cli.options import DEFAULT_DATA_DIR, ConfigOption, DataDirOption
from hub.fsck import fsck
from hub.settings import load
from hub.storage import identity, retention
from hub.storage.datadir import DataDir, DataDirLock
from hub.storage.index import last_hub_ts
from hub.storage.rebuild import rebuild as rebuild_derived
from veen.audit.report import AuditReport
from veen.errors import Refused, Untrusted

_SHOWN_FAULTS: Final = 20


def verify(data_dir: DataDirOption = DEFAULT_DATA_DIR, config: ConfigOption = None) -> None:
    """Verify every byte of the data directory of a stopped hub (fsck).

    Exits with 3 if anything is wrong, and names the first bad byte.

    Example: veen hub verify --data-dir ./hub --config hub.toml
    """
    settings = load(config)
    with progress("verify") as report:
        audit = fsck.verify(
            DataDir(data_dir.resolve()),
            limits=settings.limits,
            profiles=settings.profiles,
            streams=settings.streams,
            progress=report,
        )
    _show(audit)
    if not audit.ok and global_options().json:
        raise typer.Exit(INTEGRITY)
    if not audit.ok:
        raise Untrusted(_blame(audit))


def rebuild(data_dir: DataDirOption = DEFAULT_DATA_DIR, config: ConfigOption = None) -> None:
    """Rebuild the derived state of a stopped hub from its log.

    Example: veen hub rebuild --data-dir ./hub --config hub.toml
    """
    settings = load(config)
    with progress("rebuild") as report:
        rebuilt = rebuild_derived(
            DataDir(data_dir.resolve()),
            limits=settings.limits,
            streams=settings.streams,
            progress=report,
        )
    show(
        {
            "labels": rebuilt.labels,
            "entries": rebuilt.entries,
            "agreed": rebuilt.agreed,
            "differed": list(rebuilt.differed),
            "set_aside": list(rebuilt.set_aside),
        }
    )


def retain(
    data_dir: DataDirOption = DEFAULT_DATA_DIR,
    config: ConfigOption = None,
    prune: Annotated[
        bool, typer.Option("--prune", help="Remove the chunks; the hub must be stopped.")
    ] = False,
    move_to: Annotated[
        Path | None, typer.Option("--move-to", metavar="DIR", help="Copy the chunks here first.")
    ] = None,
) -> None:
    """List the sealed chunks that have expired; with --prune, remove them.

    Checkpoints, peaks, summaries and what proofs need are never removed. Age is measured in hub
    time, at most that of the latest message, so that a clock that is ahead removes nothing early.

    Example: veen hub retention --data-dir ./hub --config hub.toml --prune --move-to ./attic
    """
    settings, datadir = load(config), DataDir(data_dir.resolve())
    if not datadir.log.is_dir():
        raise Refused(f"{datadir.root} is not a data directory: it has no log")
    now = retention.hub_time(datadir, int(time.time()))
    due = retention.plan_retention(datadir, settings.retention, settings.streams, now)
    done = (
        retention.prune(datadir, due, limits=settings.limits, move_to=move_to, now=now)
        if prune
        else []
    )
    rules = {rule.pattern: rule.keep_days or retention.LONG_TERM for rule in settings.retention}
    names = [
        f"{chunk_name.label.hex()} {chunk_name.start_seq}-{chunk_name.end_seq}"
        for chunk_name in due
    ]
    show({"rules": rules, "default": retention.LONG_TERM, "due": names, "pruned": len(done)})


def rotate_key(
    data_dir: DataDirOption = DEFAULT_DATA_DIR,
    overlap_sec: Annotated[
        int,
        typer.Option(min=0, metavar="N", help="How long the old key co-signs checkpoints."),
    ] = 86_400,
) -> None:
    """Rotate the key of a stopped hub; hub_id, labels and old receipts stay valid.

    Example: veen hub rotate-key --data-dir ./hub
    """
    datadir = DataDir(data_dir.resolve())
    lock = DataDirLock(datadir)
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


def _show(report: AuditReport) -> None:
    document = json.loads(report.to_json())
    if not report.ok:
        document |= {"code": "FAULTS", "detail": _blame(report)}
    show(document, "\n".join(_report(report)))


def _report(report: AuditReport) -> Iterator[str]:
    for fault in report.faults[:_SHOWN_FAULTS]:
        yield f"FAULT {fault.file} at byte {fault.offset}: {fault.what} [{fault.code}]"
    yield from (*report.derived, *report.notes)
    yield (
        f"{report.entries} entries in {report.chunks} chunks of {report.labels} labels, "
        f"{report.checkpoints} checkpoints: {len(report.faults)} faults"
    )


def _blame(report: AuditReport) -> str:
    first = report.faults[0]
    return f"{len(report.faults)} faults, the first in {first.file} at byte {first.offset}"
