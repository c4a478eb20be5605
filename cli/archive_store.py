"""``veen archive``, the commands for a store: bring a hub there, check it, copy it, look at it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from cli.archive_metrics import write_metrics
from cli.archive_options import EscrowOption, StoreOptions, TargetOptions, sealer_to
from cli.console import manner, notice, progress, show
from cli.failure import INTEGRITY
from cli.options import DEFAULT_DATA_DIR, DataDirOption
from cli.pinned_hub import KnownHubOptions, end_unproven, own_identity
from hub.storage.datadir import DataDir
from hub.storage.writer import Writer
from recorder.archive.check import Checked, check
from recorder.archive.clone import clone as clone_archive
from recorder.archive.push import push as push_directory
from recorder.archive.source import Source
from recorder.archive.status import HubStatus
from recorder.archive.status import status as status_of
from recorder.archive.store import HubArchive, hubs
from veen.errors import Untrusted
from veen.hub_identity import HubIdentity
from veen.limits import Limits

app = typer.Typer(help="Keep a hub in object storage, and restore it.", no_args_is_help=True)

_SHOWN_FLAWS: Final = 20
_KEEPS: Final = {
    True: "keeps",
    False: "DOES NOT KEEP",
    None: "lets us only read, so that nobody has looked whether it keeps",
}


@app.command()
def push(
    at: StoreOptions, data_dir: DataDirOption = DEFAULT_DATA_DIR, escrow: EscrowOption = None
) -> None:
    """Bring the archive of a hub up to its directory, beside the running hub or without it.

    Example: veen archive push --data-dir ./hub --store file:///mnt/archive --escrow card.pub
    """
    datadir, store = DataDir(data_dir.resolve()), at.open()
    with progress("push", "objects") as report, Writer(datadir) as hub:
        source = Source(datadir.root, Limits(), hub)
        found = push_directory(source, store, sealer=sealer_to(escrow), progress=report)
    if not found.is_escrowed:
        notice(
            "WARNING: no escrow holds the current key: without a copy of keys/ a restored hub "
            "can be read, not continued (--escrow CARD)"
        )
    show(
        {
            "hub_id": found.hub_id.hex(),
            "manifest": found.manifest.hex(),
            "labels": found.labels,
            "entries": found.entries,
            "new_objects": found.new_objects,
            "new_bytes": found.new_bytes,
            "is_escrowed": found.is_escrowed,
        }
    )


@app.command()
def verify(
    at: StoreOptions,
    known: KnownHubOptions,
    read_all: Annotated[
        bool, typer.Option("--read-all", help="Read every byte, not only manifests.")
    ] = False,
) -> None:
    """Check that an archive is complete and of one hub; no segment is read. Exit code 3 if not.

    Without --hub-identity or --known-hubs the archive is judged by the identity that lies in it,
    and is unproven (exit code 6): a key that it calls current may have retired.

    Example: veen archive verify --store file:///mnt/archive --hub-identity hub-identity.cbor
    """
    archive = at.archive()
    newest = known.newest(archive.keys.hub_id)
    with progress("verify", "objects") as report:
        found = check(archive, read_all=read_all, progress=report, known=newest)
    if found.ok:
        known.learn(archive.signed_identity(archive.latest()))
    _show_checked(found, is_known=newest is not None)


@app.command()
def clone(
    at: StoreOptions,
    to: TargetOptions,
) -> None:
    """Copy an archive to another store: the same keys, the same bytes, the same head.

    Example: veen archive clone --store file:///mnt/archive --to-store s3://archive/line-1
    """
    hub_id = at.archive().keys.hub_id
    with progress("clone", "objects") as report:
        found = clone_archive(at.to_read(), to.open(at), hub_id, progress=report)
    show(
        {
            "hub_id": found.hub_id.hex(),
            "manifest": found.manifest.hex(),
            "objects": found.objects,
            "new_objects": found.new_objects,
            "new_bytes": found.new_bytes,
            "lost_of_history": found.lost,
        }
    )


@app.command()
def status(
    at: StoreOptions,
    metrics: Annotated[
        Path | None,
        typer.Option("--metrics", metavar="FILE", help="Write it for a Prometheus collector too."),
    ] = None,
) -> None:
    """Tell what a store keeps its word on, and what it holds of each hub.

    Example: veen archive status --store file:///mnt/archive
    """
    store, kept = at.to_read(), at.looked_at()
    wanted = [at.wanted()] if at.hub_id else list(hubs(store))
    found = [HubArchive(store, one) for one in wanted]
    named = [status_of(one) for one in found if one.head().value is not None]
    headless = [one.keys.hub_id.hex() for one in found if one.head().value is None]
    if metrics is not None:
        write_metrics(metrics, kept, named, int(time.time()))
    document = {
        "store": kept.url,
        "kind": kept.kind,
        "keeps_conditions": kept.keeps_conditions,
        "warnings": list(kept.warnings),
        "hubs": [_hub(one) for one in named],
        "unfinished": headless,
    }
    show(document, "\n".join(_status_lines(document)))


def _show_checked(found: Checked, *, is_known: bool) -> None:
    document: dict[str, Any] = {
        "ok": found.ok and is_known,
        "hub_identity": found.hub.number if found.hub else None,
        "hub_identity_since": found.hub.current.valid_from if found.hub else None,
        "hub_identity_known": is_known,
        "manifest": found.manifest.hex(),
        "labels": found.labels,
        "entries": found.entries,
        "segments": found.segments,
        "bytes": found.stored_bytes,
        "roots": {label.hex(): root.hex() for label, root in sorted(found.roots.items())},
        "flaws": [{"key": one.key, "what": one.what} for one in found.flaws],
    }
    lines = [f"FLAW {one.key}: {one.what}" for one in found.flaws[:_SHOWN_FLAWS]]
    lines.append(
        f"{found.entries} entries in {found.segments} segments of {found.labels} labels, "
        f"{found.stored_bytes} bytes: {len(found.flaws)} flaws"
    )
    if found.hub is not None and is_known:
        lines.append(f"judged by {found.hub.described()}")
    if found.ok:
        _show_complete(document, lines, None if is_known else found.hub)
        return
    blame = f"{len(found.flaws)} flaws, the first in {found.flaws[0].key}: {found.flaws[0].what}"
    show(document | {"code": "FLAWS", "detail": blame}, "\n".join(lines))
    if manner().json:
        raise typer.Exit(INTEGRITY)
    raise Untrusted(blame)


def _show_complete(document: dict[str, Any], lines: list[str], own: HubIdentity | None) -> None:
    """Without a flaw; ``own`` is the archive's identity where nobody vouches for it."""
    if own is None:
        show(document, "\n".join(lines))
        return
    why = f"the archive is {own_identity('the archive', own)}"
    show(document | {"code": "UNPROVEN", "detail": why}, "\n".join(lines))
    end_unproven(why)


def _hub(found: HubStatus) -> dict[str, Any]:
    return {
        "hub_id": found.hub_id.hex(),
        "manifest": found.manifest.hex(),
        "key_id": found.key_id.hex(),
        "entries": found.entries,
        "bytes": found.stored_bytes,
        "last_hub_ts": found.last_ts,
        "age_sec": max(0, int(time.time()) - found.last_ts),
        "has_escrow": found.is_escrowed is not None,
        "is_escrowed": bool(found.is_escrowed),
        "unsettled_from": found.unsettled_from,
        "labels": [
            {
                "label": one.label.hex(),
                "end_seq": one.end_seq,
                "sealed_seq": one.sealed_seq,
                "last_hub_ts": one.last_ts,
                "bytes": one.stored_bytes,
                "manifest_root": one.root.hex(),
            }
            for one in found.labels
        ],
    }


def _status_lines(document: dict[str, Any]) -> Iterator[str]:
    keeps = _KEEPS[document["keeps_conditions"]]
    yield f"store {document['store']} ({document['kind']}) {keeps} conditional writes"
    yield from (f"WARNING: {one}" for one in document["warnings"])
    for hub in document["hubs"]:
        escrow = "holds the current key" if hub["is_escrowed"] else "lacks the current key"
        yield (
            f"hub {hub['hub_id']}: {hub['entries']} entries in {len(hub['labels'])} labels, "
            f"{hub['bytes']} bytes, the last entry {hub['age_sec']} s ago, "
            + (f"escrow {escrow}" if hub["has_escrow"] else "no escrow")
        )
        for one in hub["labels"]:
            yield f"  label {one['label']}: to {one['end_seq']}, sealed to {one['sealed_seq']}"
    yield from (f"hub {one}: a push that never ended" for one in document["unfinished"])
