"""``veen archive``, the commands that make hubs of an archive: restore one, fork one."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from cli.archive_forget import forget
from cli.archive_options import KeysOptions, StoreOptions
from cli.archive_store import app
from cli.console import manner, notice, progress, show
from cli.failure import INTEGRITY, Refused
from cli.options import ConfigOption
from hub.fsck import verify as fsck
from hub.settings import Settings, load
from hub.storage import identity
from hub.storage.datadir import DataDir
from hub.storage.rebuild import rebuild
from recorder.archive.restore import Restored
from recorder.archive.restore import restore as restore_directory
from veen.audit.report import Report
from veen.errors import Untrusted

__all__ = ["app"]

app.command()(forget)

ToOption = Annotated[Path, typer.Option("--to", metavar="DIR", help="The data directory to make.")]


@app.command()
def restore(at: StoreOptions, keys: KeysOptions, to: ToOption, config: ConfigOption = None) -> None:
    """Build a data directory from an archive, and check every byte of it.

    Example: veen archive restore --store file:///mnt/archive --to ./hub --client ./me
    """
    archive, settings = at.archive(), load(config)
    with progress("restore") as report:
        found = restore_directory(
            archive,
            to.absolute(),
            seeds=keys.seeds(archive),
            limits=settings.limits,
            progress=report,
        )
    _finish(found, DataDir(to.resolve()), settings, {"has_keys": keys.is_given})
    notice(
        "WARNING: receipts given after the last push are not in this directory. If the old hub "
        "gave any, a hub that goes on from here contradicts them: compare the heads first"
    )


@app.command()
def fork(
    at: StoreOptions,
    keys: KeysOptions,
    to: ToOption,
    hub_ts: Annotated[int, typer.Option("--at", min=0, metavar="HUB_TS", help="The last second.")],
    config: ConfigOption = None,
) -> None:
    """Make a hub of what was logged up to a hub_ts; it goes on under a key of its own.

    Example: veen archive fork --store file:///mnt/archive --to ./fork --at 1794800000 --keys ./keys
    """
    if not keys.is_given:
        raise typer.BadParameter("a fork needs the key that endorses its own: --client or --keys")
    archive, settings = at.archive(), load(config)
    with progress("fork") as report:
        found = restore_directory(
            archive,
            to.absolute(),
            seeds=keys.seeds(archive),
            limits=settings.limits,
            progress=report,
            at=hub_ts,
            finish=_rotate,
        )
    datadir = DataDir(to.resolve())
    current = identity.read_identity(datadir).current
    _finish(found, datadir, settings, {"forked_at": hub_ts, "key_id": current.key_id.hex()})
    # In the second of its end the old key would still witness checkpoints of the fork.
    while int(time.time()) <= current.valid_from:
        time.sleep(0.05)
    notice("WARNING: the fork has the hub_id of the original: archive it in a store of its own")


def _rotate(root: Path, found: Restored) -> None:
    """Before the fork has its name it has its own key: nothing is ever signed twice by one."""
    now = int(time.time())
    if found.hub_time > now:
        raise Refused(f"hub time, {found.hub_time}, is ahead of this host's clock: wait, or set it")
    identity.rotate(DataDir(root), os.urandom, now, 0)


def _finish(found: Restored, datadir: DataDir, settings: Settings, more: dict[str, Any]) -> None:
    datadir.create()
    with progress("rebuild") as report:
        rebuild(datadir, limits=settings.limits, streams=settings.streams, progress=report)
    with progress("verify") as report:
        audit = fsck.verify(
            datadir,
            limits=settings.limits,
            profiles=settings.profiles,
            streams=settings.streams,
            progress=report,
        )
    document = {
        "ok": audit.ok,
        "hub_id": found.hub_id.hex(),
        "manifest": found.manifest.hex(),
        "data_dir": str(datadir.root),
        "entries": audit.entries,
        "last_hub_ts": found.last_ts,
        **more,
        "heads": _heads(found, audit),
        "faults": len(audit.faults),
    }
    show(document, "\n".join(_lines(document)))
    if not audit.ok and manner().json:
        raise typer.Exit(INTEGRITY)
    if not audit.ok:
        raise Untrusted(f"{len(audit.faults)} faults: run veen hub verify for all of them")


def _heads(found: Restored, audit: Report) -> list[dict[str, Any]]:
    roots = {label: head.root.hex() if head.root else None for label, head in audit.heads.items()}
    return [
        {
            "label": one.label.hex(),
            "end_seq": one.end_seq,
            "mmr_root": roots.get(one.label),
            "hub_ts": one.last_ts,
        }
        for one in found.labels
    ]


def _lines(document: dict[str, Any]) -> Iterator[str]:
    for one in document["heads"]:
        yield (
            f"head {one['label']}: {one['end_seq']} entries, root {one['mmr_root']}, "
            f"hub_ts {one['hub_ts']}"
        )
    yield (
        f"hub {document['hub_id']}: {document['entries']} entries in {document['data_dir']}, "
        f"{document['faults']} faults"
    )
