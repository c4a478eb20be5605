"""``veen hub``, the commands for a data directory and what it proves: check, mend, keep, rotate."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Annotated

import httpx
import typer

from cli.console import INTEGRITY, Refused, Unreachable, progress, show
from cli.hub import DataDirOption, HubOption, JsonOption, app, get
from hub.fsck import verify as fsck
from hub.settings import load, parse_key
from hub.storage import identity, retention
from hub.storage.datadir import DataDir, Lock
from hub.storage.index import last_hub_ts
from hub.storage.rebuild import rebuild as rebuild_derived
from veen import label as labels
from veen.checkpoint import Checkpoint
from veen.envelope import CheckpointRequest, CheckpointResponse
from veen.errors import Untrusted
from veen.stream import stream_id

__all__ = ["app"]

ConfigOption = Annotated[Path | None, typer.Option("--config", help="The hub's TOML file.")]
_SHOWN_FAULTS = 20


@app.command()
def verify(
    data_dir: DataDirOption = Path("veen-data"),
    config: ConfigOption = None,
    json: JsonOption = False,
) -> None:
    """Check every byte of a stopped hub's directory; exit code 3 names the first bad one."""
    settings = load(config)
    with progress("verify") as report:
        found = fsck.verify(
            DataDir(data_dir.resolve()),
            limits=settings.limits,
            profiles=settings.profiles,
            streams=settings.streams,
            progress=report,
        )
    if json:
        typer.echo(found.to_json().decode())
    else:
        for fault in found.faults[:_SHOWN_FAULTS]:
            typer.echo(f"FAULT {fault.file} at byte {fault.offset}: {fault.what} [{fault.code}]")
        for line in (*found.derived, *found.notes):
            typer.echo(line)
        typer.echo(
            f"{found.entries} entries in {found.chunks} chunks of {found.labels} labels, "
            f"{found.checkpoints} checkpoints: {len(found.faults)} faults"
        )
    if not found.ok:
        raise typer.Exit(INTEGRITY)


@app.command()
def rebuild(
    data_dir: DataDirOption = Path("veen-data"),
    config: ConfigOption = None,
    json: JsonOption = False,
) -> None:
    """Make the derived state of a stopped hub again from its log, and say if it had agreed."""
    settings = load(config)
    with progress("rebuild") as report:
        found = rebuild_derived(
            DataDir(data_dir.resolve()),
            limits=settings.limits,
            streams=settings.streams,
            progress=report,
        )
    differed = list(found.differed)
    show(
        {
            "labels": found.labels,
            "entries": found.entries,
            "agreed": found.agreed,
            "differed": differed,
        },
        as_json=json,
    )


@app.command("retention")
def retain(
    data_dir: DataDirOption = Path("veen-data"),
    config: ConfigOption = None,
    prune: Annotated[
        bool, typer.Option(help="Take the chunks away; the hub must be stopped.")
    ] = False,
    move_to: Annotated[Path | None, typer.Option(help="Copy them here first.")] = None,
    json: JsonOption = False,
) -> None:
    """Show which sealed chunks the configured retention lets go; with --prune, let them go.

    Checkpoints, peaks, summaries and what proofs need always stay.
    """
    settings, datadir, now = load(config), DataDir(data_dir.resolve()), int(time.time())
    due = retention.plan(datadir, settings.retention, settings.streams, now)
    done = (
        retention.prune(datadir, due, limits=settings.limits, move_to=move_to, now=now)
        if prune
        else []
    )
    rules = {rule.pattern: rule.keep_days or retention.LONG_TERM for rule in settings.retention}
    names = [f"{one.label.hex()} {one.start_seq}-{one.end_seq}" for one in due]
    show(
        {"rules": rules, "default": retention.LONG_TERM, "due": names, "pruned": len(done)},
        as_json=json,
    )


@app.command()
def checkpoint(
    stream: Annotated[str, typer.Option(help="Name of a stream (without epochs).")],
    upto: Annotated[int, typer.Option(help="The stream_seq it ends at.")],
    hub: HubOption = "http://127.0.0.1:8080",
    token_file: Annotated[Path | None, typer.Option(help="File with a bearer token.")] = None,
    out: Annotated[Path | None, typer.Option(help="Write the CHECKPOINT here.")] = None,
    json: JsonOption = False,
) -> None:
    """Have a checkpoint made (or fetch it) and check the hub's signature on it."""
    status = get(hub, "/tooling/status")
    name = labels.label(labels.routing_key(bytes.fromhex(status["hub_id"])), stream_id(stream), 0)
    body = CheckpointRequest(label=name, upto_seq=upto).encode()
    found = CheckpointResponse.decode(_post(hub, "/v1/checkpoint", body, token_file)).checkpoint
    if not any(found.is_signed_by(bytes.fromhex(key["hub_pk"])) for key in status["hub_keys"]):
        raise Untrusted("the checkpoint is not signed by a key of the hub")
    if out is not None:
        out.write_bytes(found.encode())
    show(
        {
            "label": name.hex(),
            "upto_seq": found.upto_seq,
            "mmr_root": found.mmr_root.hex(),
            "epoch": found.epoch,
        },
        as_json=json,
    )


@app.command("rotate-key")
def rotate_key(
    data_dir: DataDirOption = Path("veen-data"),
    overlap_sec: Annotated[
        int, typer.Option(help="How long the old key still witnesses checkpoints.")
    ] = 86_400,
    json: JsonOption = False,
) -> None:
    """Give a stopped hub a new key; its name, labels and old receipts stay valid."""
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
        },
        as_json=json,
    )


@app.command("verify-rotation")
def verify_rotation(
    checkpoint: Annotated[Path, typer.Option(help="A checkpoint file of the hub.")],
    old_key: Annotated[str, typer.Option(help="The old hub_pk in hex.")],
    new_key: Annotated[str, typer.Option(help="The new hub_pk in hex.")],
) -> None:
    """Check that a checkpoint of the overlap is witnessed by both keys."""
    found = Checkpoint.decode(checkpoint.read_bytes())
    for name, public in (("old", old_key), ("new", new_key)):
        if not found.is_witnessed_by(parse_key(f"{name} key", public)):
            raise Untrusted(f"{checkpoint.name} is not witnessed by the {name} key")
    if not found.is_signed_by(parse_key("new key", new_key)):
        raise Untrusted(f"{checkpoint.name} is not signed by the new key")
    typer.echo(f"{checkpoint.name}: signed by the new key, witnessed by both")


def _post(hub: str, path: str, body: bytes, token_file: Path | None) -> bytes:
    headers = {"Content-Type": "application/cbor"}
    if token_file is not None:
        headers["Authorization"] = f"Bearer {token_file.read_text().strip()}"
    try:
        reply = httpx.post(f"{hub.rstrip('/')}{path}", content=body, headers=headers, timeout=30)
    except httpx.HTTPError as error:
        raise Unreachable(f"{hub} does not answer: {error}") from error
    if reply.status_code != httpx.codes.OK:
        raise Refused(f"{hub}{path} answered {reply.status_code}")
    return reply.content
