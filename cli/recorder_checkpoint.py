"""``veen recorder checkpoint``: make recorder checkpoints, keep them, and prove them later."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from pathlib import Path
from threading import Event
from typing import Annotated, Any

import typer

from cli.checkpoint_options import (
    NO_IDENTITY,
    ActorOptions,
    ConfigOnlyOption,
    FetchOption,
    anchored_document,
    chosen,
    document,
    door_of,
    moment,
)
from cli.checkpoint_trust import kept_identities, newest_of
from cli.console import notice, show, show_one
from cli.pinned_hub import KnownHubOptions, end_unproven
from cli.recorder_options import refuse_changed_map
from recorder.anchor import book
from recorder.anchor.port import kind_of
from recorder.checkpoints import check, hub_papers
from recorder.checkpoints import create as creation
from recorder.checkpoints import shelf as shelves
from recorder.checkpoints.door import Door
from recorder.checkpoints.retained import Pruned, pruned
from recorder.checkpoints.run import Runner, Turn
from recorder.settings import DEFAULT_PATH, load
from recorder.stream_map import refuse_strange_profiles
from veen import durable
from veen.errors import Untrusted
from veen.hub_identity import HubIdentity
from veen.recorder_checkpoint import RecorderCheckpoint

app = typer.Typer(help="One signed document over the ends of all streams.", no_args_is_help=True)


@app.command()
def create(
    at: ActorOptions,
    force: Annotated[
        bool, typer.Option("--force", help="A new one, though no stream has moved.")
    ] = False,
) -> None:
    """Have the hub sign how far every stream goes, check it, and keep it.

    Events go on being recorded meanwhile. The client must be a principal of the hub that manages
    streams ([hub] principal).

    Example: veen recorder checkpoint create --config recorder.toml
    """
    door = at.door()
    refuse_changed_map(door.settings)
    with at.session(door.settings) as session:
        refuse_strange_profiles(session.api.streams())
        found = creation.create(session, door.shelf(), door.settings.profile_id(), force=force)
        hub_papers.keep(door.home, session)
    show({**document(found.checkpoint), "is_new": found.is_new})


@app.command()
def verify(
    at: ActorOptions,
    known: KnownHubOptions,
    file: Annotated[
        Path | None, typer.Argument(metavar="[FILE]", help="One that you hold; else the latest.")
    ] = None,
    offline: Annotated[
        bool, typer.Option("--offline", help="Without the hub: signatures, order and anchors.")
    ] = False,
) -> None:
    """Prove that a checkpoint holds: the hub signed it, and its log still begins with it.

    All that are kept are checked for order. Then the hub proves for each stream that what it
    holds now continues what it signed then, and every anchor is checked. The newest identity of
    the hub decides that is kept, pinned by the client, given or remembered; without any it is
    unproven (exit code 6): the key that signed it may have retired before.

    Example: veen recorder checkpoint verify --config recorder.toml
    """
    door = at.door()
    shelf = door.shelf()
    wanted = shelves.read(file) if file else shelf.get(chosen(shelf, None))
    hub = _newest(door, wanted, known)
    kept = _verify_documents(door, wanted, hub)
    shown = {**document(wanted), "kept_in_order": kept, "anchors": _anchors(door, wanted)}
    if not offline:
        with at.session(door.settings) as session:
            before, hub = hub, newest_of([hub, session.hub])
            if hub != before:
                _verify_documents(door, wanted, hub)
            held = list(check.verify_on_hub(session, wanted))
            gone = list(pruned(session, {one.name: one.head_seq for one in held}))
        shown["held_by_hub"] = [
            {"name": one.name, "last_seq": one.last_seq, "head_seq": one.head_seq} for one in held
        ]
        shown |= _told(gone)
    show({**shown, "hub_identity_known": hub is not None})
    if hub is None:
        end_unproven(f"checkpoint {wanted.checkpoint_id.hex()} is unproven: {NO_IDENTITY}")


@app.command("list")
def list_(config: ConfigOnlyOption = DEFAULT_PATH, fetch: FetchOption = False) -> None:
    """List the checkpoints that are kept, and how many anchors each has.

    Example: veen recorder checkpoint list --config recorder.toml
    """
    door = door_of(load(config))
    if fetch:
        door.shelf().fetch()
    rows = [
        {
            "checkpoint_id": name.checkpoint_id.hex(),
            "created_at": moment(name.created_at),
            "anchors": len(door.refs().of(name.checkpoint_id)),
        }
        for name in door.shelf().names()
    ]
    lines = [f"{one['created_at']} {one['checkpoint_id']} anchors={one['anchors']}" for one in rows]
    show({"checkpoints": rows}, "\n".join(lines) or "no recorder checkpoint is kept yet")


@app.command()
def latest(
    config: ConfigOnlyOption = DEFAULT_PATH,
    fetch: FetchOption = False,
    out: Annotated[
        Path | None, typer.Option("--out", metavar="FILE", help="Write the document there, too.")
    ] = None,
) -> None:
    """Show the last checkpoint that is kept, without asking the hub.

    Example: veen recorder checkpoint latest --config recorder.toml --out last.cbor
    """
    door = door_of(load(config))
    if fetch:
        door.shelf().fetch()
    found = door.shelf().get(chosen(door.shelf(), None))
    if out is not None:
        durable.write(out.absolute(), found.encode())
    show(document(found))


@app.command()
def run(
    at: ActorOptions,
    poll_sec: Annotated[
        int, typer.Option("--poll-sec", min=1, metavar="N", help="How often to look at the hub.")
    ] = 10,
) -> None:
    """Make checkpoints and anchors whenever they are due, until it is told to stop.

    For those who have no Airflow. SIGTERM and Ctrl-C end it after what it is just doing; what is
    left is done by the next run. Exit code 3 says that something did not hold.

    Example: veen recorder checkpoint run --config recorder.toml
    """
    door, stop = at.door(), Event()
    refuse_changed_map(door.settings)
    for one in (signal.SIGTERM, signal.SIGINT):
        signal.signal(one, lambda _signal, _frame: stop.set())
    runner = Runner(
        session=lambda: at.session(door.settings),
        shelf=door.shelf(),
        book=door.book() if door.is_anchoring() else None,
        cadence=door.cadence,
        profile_id=door.settings.profile_id(),
        clock=lambda: int(time.time()),
    )
    for turn in runner.turns(lambda: stop.wait(poll_sec) or stop.is_set()):
        _tell(turn)
        if stop.is_set():
            break


def _tell(turn: Turn) -> None:
    if turn.error is not None:
        notice(f"no checkpoint this time: {turn.error}")
    if turn.created is not None and turn.created.is_new:
        found = document(turn.created.checkpoint)
        line = f"{found['created_at']} checkpoint {found['checkpoint_id']} ({turn.reason})"
        show_one({"event": "checkpoint", "reason": turn.reason, **found}, [line])
    for one in turn.anchors:
        checkpoint_id = one.task.checkpoint_id.hex()
        if one.ref is not None:
            shown = {"event": "anchor", "checkpoint_id": checkpoint_id, "anchor": one.ref.name}
            show_one(shown, [f"anchored {checkpoint_id} as {one.ref.name}"])
        elif one.error is not None:
            notice(f"not anchored yet, {one.task.attempts} attempts: {one.error}")


def _told(gone: list[Pruned]) -> dict[str, Any]:
    """Proofs hold all the same, so that it is no failure of the checkpoint."""
    for one in gone:
        notice(f"warning: {one.told()}")
    return {"pruned": [one._asdict() for one in gone]} if gone else {}


def _newest(door: Door, wanted: RecorderCheckpoint, known: KnownHubOptions) -> HubIdentity | None:
    """The newest identity of the hub of the settings: kept, pinned, given or remembered."""
    if wanted.hub_id != door.settings.hub.hub_id:
        raise Untrusted(f"the checkpoint is of hub {wanted.hub_id.hex()}, not of [hub] hub_id")
    given = known.newest(wanted.hub_id)
    return newest_of([*kept_identities(door.settings, wanted.hub_id), given])


def _verify_documents(door: Door, wanted: RecorderCheckpoint, hub: HubIdentity | None) -> int:
    """All that are kept and the one asked for, by one identity; how many are kept."""
    shelf, by = door.shelf(), hub_papers.of_document(wanted, hub)
    kept = check.verify_chain((shelf.get(name) for name in shelf.names()), by)
    check.verify_next(wanted, None, by)
    return kept


def _anchors(door: Door, wanted: RecorderCheckpoint) -> list[dict[str, Any]]:
    return list(_checked_anchors(door, wanted)) if door.is_anchoring() else []


def _checked_anchors(door: Door, wanted: RecorderCheckpoint) -> Iterator[dict[str, Any]]:
    anchor = door.anchor()
    for ref in door.refs().of(wanted.checkpoint_id):
        if kind_of(ref.anchor_ref) == anchor.kind:
            yield anchored_document(ref.name, book.verify(anchor, wanted, ref.anchor_ref))
        else:
            notice(f"{ref.name} was not checked: anchors of its kind are not configured any more")
