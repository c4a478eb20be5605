"""``veen archive``: push a hub to an object store, verify, clone and restore it, and prune the
store.

The status of a store can also be written as metrics for a node's textfile collector.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Annotated, Any, Final

import typer
from prometheus_client import CollectorRegistry, Gauge, write_to_textfile

from cli.console import global_options, notice, progress, show
from cli.errors import INTEGRITY
from cli.hub_checkpoint import KnownHubOptions, end_unproven, own_identity
from cli.options import DEFAULT_DATA_DIR, ConfigOption, DataDirOption
from cli.store_options import EscrowOption, KeysOptions, StoreOptions, TargetOptions, sealer_to
from hub.fsck import fsck
from hub.settings import HubSettings, load
from hub.storage import identity
from hub.storage.datadir import DataDir
from hub.storage.reader import LogWriter
from hub.storage.rebuild import rebuild
from recorder.archive.clone import clone as clone_archive
from recorder.archive.gc import Keeping, forgettable
from recorder.archive.gc import forget as forget_states
from recorder.archive.push import push as push_directory
from recorder.archive.restore import RestoredArchive
from recorder.archive.restore import restore as restore_directory
from recorder.archive.source import PushSource
from recorder.archive.store import HubArchive, HubStatus, hubs
from recorder.archive.store import status as status_of
from recorder.archive.verify import ArchiveVerified, check
from veen.audit.report import AuditReport
from veen.errors import Refused, Untrusted
from veen.hub_identity import HubIdentity
from veen.limits import Limits
from veen.objects.port import StoreStatus
from veen.timestamp import readable_time

_SHOWN_FLAWS: Final = 20
_KEEPS: Final = {
    True: "supports",
    False: "DOES NOT SUPPORT",
    None: "is read-only here, and was not probed for",
}


def forget(
    at: StoreOptions,
    keep: Annotated[
        int,
        typer.Option(
            "--keep", min=1, metavar="N", help="Number of states to keep, including the last."
        ),
    ] = 32,
    keep_sec: Annotated[
        int | None,
        typer.Option(
            "--keep-sec",
            min=0,
            metavar="SEC",
            help="Keep states younger than this, whatever --keep says.",
        ),
    ] = None,
    delete: Annotated[bool, typer.Option("--delete", help="Delete; default: dry run.")] = False,
) -> None:
    """Delete manifests and copies of open chunks that only earlier states need.

    Example: veen archive forget --store file:///mnt/archive --keep 32 --delete
    """
    since = None if keep_sec is None else int(time.time()) - keep_sec
    forgotten = forgettable(at.archive(), Keeping(keep, since))
    if delete:
        with progress("forget", "objects") as report:
            forget_states(at.retention(), forgotten, report)
    elif forgotten.keys:
        notice("nothing was deleted: give --delete")
    show(
        {
            "hub_id": forgotten.hub_id.hex(),
            "remaining_states": forgotten.stored,
            "earlier_states": forgotten.states,
            "objects": len(forgotten.keys),
            "bytes": forgotten.size,
            "deleted": delete,
        }
    )


def write_metrics(path: Path, store: StoreStatus, hubs: Iterable[HubStatus], now: int) -> None:
    """Write the metrics to ``path``, atomically."""
    registry = CollectorRegistry()
    _store_metrics(registry, store, now)
    _hub_metrics(registry, store, list(hubs))
    try:
        write_to_textfile(str(path), registry)
    except OSError as error:
        raise Refused(f"{path}: {error.strerror}: give a writable file with --metrics") from error


def _store_metrics(registry: CollectorRegistry, store: StoreStatus, now: int) -> None:
    looked_at = Gauge(
        "veen_archive_looked_at_seconds", "Unix time of this probe", ["store"], registry=registry
    )
    looked_at.labels(store.url).set(now)
    keeps = Gauge(
        "veen_archive_keeps_condition",
        "Whether the store honours a conditional write; absent if not probed",
        ["store", "condition"],
        registry=registry,
    )
    supported = {"if_none_match": store.keeps_if_none_match, "if_match": store.keeps_if_match}
    for condition, is_stored in supported.items():
        if is_stored is not None:
            keeps.labels(store.url, condition).set(is_stored)


def _hub_metrics(registry: CollectorRegistry, store: StoreStatus, hubs: list[HubStatus]) -> None:
    def gauge(name: str, text: str, values: Iterable[float]) -> None:
        made = Gauge(f"veen_archive_{name}", text, ["store", "hub_id"], registry=registry)
        for hub, value in zip(hubs, values, strict=True):
            made.labels(store.url, hub.hub_id.hex()).set(value)

    gauge("entries", "Entries archived, of all labels", (hub.entries for hub in hubs))
    gauge("bytes", "Bytes of the latest state", (hub.stored_bytes for hub in hubs))
    gauge("last_hub_ts_seconds", "hub_ts of the last archived entry", (x.last_ts for x in hubs))
    gauge(
        "escrow_has_current_key",
        "Whether the escrow holds the key with which the hub goes on",
        (bool(hub.is_escrowed) for hub in hubs),
    )


app = typer.Typer(help="Archive a hub in object storage, and restore it.", no_args_is_help=True)


@app.command()
def push(
    at: StoreOptions, data_dir: DataDirOption = DEFAULT_DATA_DIR, escrow: EscrowOption = None
) -> None:
    """Update the archive of a hub from its data directory; the hub may run.

    Example: veen archive push --data-dir ./hub --store file:///mnt/archive --escrow card.pub
    """
    datadir, store = DataDir(data_dir.resolve()), at.open()
    with progress("push", "objects") as report, LogWriter(datadir) as hub:
        source = PushSource(datadir.root, Limits(), hub)
        pushed = push_directory(source, store, sealer=sealer_to(escrow), progress=report)
    if not pushed.is_escrowed:
        notice(
            "WARNING: no escrow holds the current key: without a copy of keys/ a restored hub "
            "can be read, not continued (--escrow CARD)"
        )
    show(
        {
            "hub_id": pushed.hub_id.hex(),
            "manifest": pushed.manifest.hex(),
            "labels": pushed.labels,
            "entries": pushed.entries,
            "new_objects": pushed.new_objects,
            "new_bytes": pushed.new_bytes,
            "is_escrowed": pushed.is_escrowed,
        }
    )


@app.command()
def verify(
    at: StoreOptions,
    known: KnownHubOptions,
    read_all: Annotated[
        bool, typer.Option("--read-all", help="Read every byte, not only the manifests.")
    ] = False,
) -> None:
    """Verify that an archive is complete and of one hub; exit with 3 if not.

    Reads manifests only, unless --read-all is given. Without --hub-identity or --known-hubs the
    archive is verified with the identity stored in it, and the result is unproven (exit code 6): a
    key that it calls current may have been retired.

    Example: veen archive verify --store file:///mnt/archive --hub-identity hub-identity.cbor
    """
    archive = at.archive()
    newest = known.newest(archive.keys.hub_id)
    with progress("verify", "objects") as report:
        verified = check(archive, read_all=read_all, progress=report, known=newest)
    if verified.ok:
        known.learn(archive.signed_identity(archive.latest()))
    _show_checked(verified, is_known=newest is not None)


@app.command()
def clone(
    at: StoreOptions,
    to: TargetOptions,
) -> None:
    """Copy an archive to another store: same keys, bytes and head.

    Example: veen archive clone --store file:///mnt/archive --to-store s3://archive/line-1
    """
    hub_id = at.archive().keys.hub_id
    with progress("clone", "objects") as report:
        cloned = clone_archive(at.to_read(), to.open(at), hub_id, progress=report)
    show(
        {
            "hub_id": cloned.hub_id.hex(),
            "manifest": cloned.manifest.hex(),
            "objects": cloned.objects,
            "new_objects": cloned.new_objects,
            "new_bytes": cloned.new_bytes,
            "lost_of_history": cloned.lost,
        }
    )


@app.command()
def status(
    at: StoreOptions,
    metrics: Annotated[
        Path | None,
        typer.Option(
            "--metrics", metavar="FILE", help="Also write Prometheus metrics to this file."
        ),
    ] = None,
) -> None:
    """Show the guarantees of a store, and the archive of each hub.

    Example: veen archive status --store file:///mnt/archive
    """
    store, stored = at.to_read(), at.looked_at()
    expected = [at.requested()] if at.hub_id else list(hubs(store))
    archives = [HubArchive(store, item) for item in expected]
    named = [status_of(archive) for archive in archives if archive.head().value is not None]
    headless = [archive.keys.hub_id.hex() for archive in archives if archive.head().value is None]
    if metrics is not None:
        write_metrics(metrics, stored, named, int(time.time()))
    document = {
        "store": stored.url,
        "kind": stored.kind,
        "keeps_conditions": stored.keeps_conditions,
        "warnings": list(stored.warnings),
        "hubs": [_hub(item) for item in named],
        "unfinished": headless,
    }
    show(document, "\n".join(_status_lines(document)))


def _show_checked(verified: ArchiveVerified, *, is_known: bool) -> None:
    document: dict[str, Any] = {
        "ok": verified.ok and is_known,
        "hub_identity": verified.hub.number if verified.hub else None,
        "hub_identity_since": verified.hub.current.valid_from if verified.hub else None,
        "hub_identity_known": is_known,
        "manifest": verified.manifest.hex(),
        "labels": verified.labels,
        "entries": verified.entries,
        "segments": verified.segments,
        "bytes": verified.stored_bytes,
        "roots": {label.hex(): root.hex() for label, root in sorted(verified.roots.items())},
        "flaws": [{"key": flaw.key, "what": flaw.what} for flaw in verified.flaws],
    }
    lines = [f"FLAW {flaw.key}: {flaw.what}" for flaw in verified.flaws[:_SHOWN_FLAWS]]
    lines.append(
        f"{verified.entries} entries in {verified.segments} segments of {verified.labels} labels, "
        f"{verified.stored_bytes} bytes: {len(verified.flaws)} flaws"
    )
    if verified.hub is not None and is_known:
        lines.append(f"judged by {verified.hub.described()}")
    if verified.ok:
        _show_complete(document, lines, None if is_known else verified.hub)
        return
    first = verified.flaws[0]
    blame = f"{len(verified.flaws)} flaws, the first in {first.key}: {first.what}"
    show(document | {"code": "FLAWS", "detail": blame}, "\n".join(lines))
    if global_options().json:
        raise typer.Exit(INTEGRITY)
    raise Untrusted(blame)


def _show_complete(document: dict[str, Any], lines: list[str], own: HubIdentity | None) -> None:
    """Report a valid archive; ``own`` is its own identity if no other is known."""
    if own is None:
        show(document, "\n".join(lines))
        return
    why = f"the archive is {own_identity('the archive', own)}"
    show(document | {"code": "UNPROVEN", "detail": why}, "\n".join(lines))
    end_unproven(why)


def _hub(status: HubStatus) -> dict[str, Any]:
    return {
        "hub_id": status.hub_id.hex(),
        "manifest": status.manifest.hex(),
        "key_id": status.key_id.hex(),
        "entries": status.entries,
        "bytes": status.stored_bytes,
        "last_hub_ts": status.last_ts,
        "age_sec": max(0, int(time.time()) - status.last_ts),
        "has_escrow": status.is_escrowed is not None,
        "is_escrowed": bool(status.is_escrowed),
        "unsettled_from": status.unsettled_from,
        "labels": [
            {
                "label": label.label.hex(),
                "end_seq": label.end_seq,
                "sealed_seq": label.sealed_seq,
                "last_hub_ts": label.last_ts,
                "bytes": label.stored_bytes,
                "manifest_root": label.root.hex(),
            }
            for label in status.labels
        ],
    }


def _status_lines(document: dict[str, Any]) -> Iterator[str]:
    keeps = _KEEPS[document["keeps_conditions"]]
    yield f"store {document['store']} ({document['kind']}) {keeps} conditional writes"
    yield from (f"WARNING: {item}" for item in document["warnings"])
    for hub in document["hubs"]:
        escrow = "holds the current key" if hub["is_escrowed"] else "lacks the current key"
        yield (
            f"hub {hub['hub_id']}: {hub['entries']} entries in {len(hub['labels'])} labels, "
            f"{hub['bytes']} bytes, the last entry {hub['age_sec']} s ago, "
            + (f"escrow {escrow}" if hub["has_escrow"] else "no escrow")
        )
        for item in hub["labels"]:
            yield f"  label {item['label']}: to {item['end_seq']}, sealed to {item['sealed_seq']}"
    yield from (f"hub {item}: a push that never ended" for item in document["unfinished"])


__all__ = ["app"]

app.command()(forget)

ToOption = Annotated[Path, typer.Option("--to", metavar="DIR", help="Data directory to create.")]


@app.command()
def restore(at: StoreOptions, keys: KeysOptions, to: ToOption, config: ConfigOption = None) -> None:
    """Restore a data directory from an archive, and verify every byte.

    Example: veen archive restore --store file:///mnt/archive --to ./hub --client ./me
    """
    archive, settings = at.archive(), load(config)
    with progress("restore") as report:
        restored = restore_directory(
            archive,
            to.absolute(),
            seeds=keys.seeds(archive),
            limits=settings.limits,
            progress=report,
        )
    _finish(restored, DataDir(to.resolve()), settings, {"has_keys": keys.is_given})
    notice(
        "WARNING: receipts given after the last push are not in this directory. If the old hub "
        "gave any, a hub that goes on from here contradicts them: compare the heads first"
    )


@app.command()
def fork(
    at: StoreOptions,
    keys: KeysOptions,
    to: ToOption,
    hub_ts: Annotated[
        int, typer.Option("--at", min=0, metavar="HUB_TS", help="Last hub_ts to include.")
    ],
    config: ConfigOption = None,
) -> None:
    """Create a new hub from the log up to a hub_ts; it continues under its own key.

    Example: veen archive fork --store file:///mnt/archive --to ./fork --at 1794800000 --keys ./keys
    """
    if not keys.is_given:
        raise typer.BadParameter(
            "a fork needs the current hub key to endorse its own: give --client or --keys"
        )
    archive, settings = at.archive(), load(config)
    with progress("fork") as report:
        forked = restore_directory(
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
    _finish(forked, datadir, settings, {"forked_at": hub_ts, "key_id": current.key_id.hex()})
    # In its last second the old key would still witness checkpoints of the fork.
    while int(time.time()) <= current.valid_from:
        time.sleep(0.05)
    notice("WARNING: the fork has the hub_id of the original: archive it in a store of its own")


def _rotate(root: Path, archive: RestoredArchive) -> None:
    """Give the fork its own key before its name, so that no key signs for two hubs."""
    now = int(time.time())
    if archive.hub_time > now:
        raise Refused(
            f"hub time, {readable_time(archive.hub_time)}, is ahead of the clock of this host: "
            "wait, or correct the clock"
        )
    identity.rotate(DataDir(root), os.urandom, now, 0)


def _finish(
    archive: RestoredArchive, datadir: DataDir, settings: HubSettings, more: dict[str, Any]
) -> None:
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
        "hub_id": archive.hub_id.hex(),
        "manifest": archive.manifest.hex(),
        "data_dir": str(datadir.root),
        "entries": audit.entries,
        "last_hub_ts": archive.last_ts,
        **more,
        "heads": _heads(archive, audit),
        "faults": len(audit.faults),
    }
    show(document, "\n".join(_lines(document)))
    if not audit.ok and global_options().json:
        raise typer.Exit(INTEGRITY)
    if not audit.ok:
        raise Untrusted(f"{len(audit.faults)} faults: run veen hub verify for all of them")


def _heads(archive: RestoredArchive, audit: AuditReport) -> list[dict[str, Any]]:
    roots = {label: head.root.hex() if head.root else None for label, head in audit.heads.items()}
    return [
        {
            "label": label.label.hex(),
            "end_seq": label.end_seq,
            "mmr_root": roots.get(label.label),
            "hub_ts": label.last_ts,
        }
        for label in archive.labels
    ]


def _lines(document: dict[str, Any]) -> Iterator[str]:
    for item in document["heads"]:
        yield (
            f"head {item['label']}: {item['end_seq']} entries, root {item['mmr_root']}, "
            f"hub_ts {readable_time(item['hub_ts'])}"
        )
    yield (
        f"hub {document['hub_id']}: {document['entries']} entries in {document['data_dir']}, "
        f"{document['faults']} faults"
    )
