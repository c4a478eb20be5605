"""``veen recorder checkpoint``: make, store and verify recorder checkpoints.

A checkpoint is verified with the newest identity of its hub that is known here.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import reduce
from pathlib import Path
from threading import Event
from typing import Annotated, Any, Final

import typer

from cli.console import notice, show, show_one
from cli.hub_checkpoint import KnownHubOptions, end_unproven
from cli.options import PassphraseFileOption
from cli.recorder_options import (
    PrincipalOption,
    RecorderConfigOption,
    RecorderOptions,
    refuse_changed_map,
)
from cli.store_options import store_credentials
from recorder import timestamp
from recorder.anchor.anchors import AnchorProof, kind_of, verify_anchors
from recorder.checkpoints.catalogue import RecorderCheckpointName
from recorder.checkpoints.checkpoints import (
    PrunedStream,
    create_checkpoint,
    pruned,
    verify_chain,
    verify_next,
    verify_on_hub,
)
from recorder.checkpoints.schedule import CheckpointRunner, RecorderServices, Turn
from recorder.checkpoints.store import (
    CheckpointStore,
    identity_of_document,
    read_document,
    read_identity,
    store_identity,
)
from recorder.settings import DEFAULT_PATH, RecorderSettings, load
from recorder.stream_map import refuse_strange_profiles
from veen.client.session import Session, load_state
from veen.errors import Untrusted, VeenError
from veen.hub_identity import HubIdentity, newest_identity
from veen.keystore.directory import ClientDir
from veen.objects.store import open_store
from veen.recorder_checkpoint import RecorderCheckpoint
from veen.system import durable

ConfigOnlyOption = RecorderConfigOption
FetchOption = Annotated[
    bool, typer.Option("--fetch", help="First fetch what only object storage has.")
]


_SHOWN_MATCHES: Final = 9
NO_IDENTITY: Final = (
    "no identity document of the hub is known here: one in which the key that signed this has "
    "retired may exist; give the newest you know (--hub-identity, --known-hubs)"
)


class NoCheckpoint(VeenError):
    """No stored recorder checkpoint matches."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ActorOptions:
    """A recorder, and the identity for its hub, by default that of RecorderOptions."""

    config: RecorderConfigOption = DEFAULT_PATH
    client: Annotated[
        Path | None,
        typer.Option(
            "--client",
            metavar="DIR",
            help="Acting identity; default: [dags.acting], then [hub] client.",
        ),
    ] = None
    principal: PrincipalOption = None
    passphrase_file: PassphraseFileOption = None

    def services(self) -> RecorderServices:
        return recorder_services(load(self.config))

    @contextmanager
    def session(self, settings: RecorderSettings) -> Iterator[Session]:
        options = RecorderOptions(
            config=self.config,
            client=self.client,
            principal=self.principal,
            passphrase_file=self.passphrase_file,
        )
        with options.open(settings) as client:
            yield client.meet()


def recorder_services(settings: RecorderSettings) -> RecorderServices:
    store = None
    if settings.objects is not None:
        store = open_store(settings.objects, store_credentials()).objects
    return RecorderServices(settings, store, os.urandom)


def chosen(checkpoint_store: CheckpointStore, value: str | None) -> RecorderCheckpointName:
    """The checkpoint with an id prefix, or the latest."""
    newest = checkpoint_store.newest(1)
    if not newest:
        raise NoCheckpoint(
            f"{checkpoint_store.home.root} holds no recorder checkpoint yet: "
            "veen recorder checkpoint create"
        )
    if not value:
        return newest[0]
    matching = checkpoint_store.starting(value, _SHOWN_MATCHES + 1)
    if len(matching) != 1:
        more = " or more" if len(matching) > _SHOWN_MATCHES else ""
        raise NoCheckpoint(
            f"{value!r}: expected the start of one checkpoint_id, got {len(matching)}{more} "
            f"matches of {checkpoint_store.count()}"
        )
    return matching[0]


def document(checkpoint: RecorderCheckpoint) -> dict[str, Any]:
    return {
        "checkpoint_id": checkpoint.checkpoint_id.hex(),
        "created_at": moment(checkpoint.created_at),
        "log_root": checkpoint.log_root.hex(),
        "hub_id": checkpoint.hub_id.hex(),
        "profile_id": checkpoint.profile_id.hex(),
        "streams": [
            {"name": name, "last_seq": end.last_seq, "mmr_root": end.mmr_root.hex()}
            for name, end in sorted(zip(checkpoint.names, checkpoint.ends, strict=True))
        ],
    }


def anchored_document(name: str, proof: AnchorProof) -> dict[str, Any]:
    return {
        "anchor": name,
        "kind": proof.kind,
        "root": proof.root.hex(),
        "time": moment(proof.time),
        "witness": proof.witness,
        "place": proof.place,
    }


def moment(seconds: int) -> str:
    return timestamp.render(seconds * 1_000)


def stored_identities(settings: RecorderSettings, hub_id: bytes) -> Iterator[HubIdentity]:
    """Identities stored beside the recorder's checkpoints, and pinned by its client."""
    if settings.hub.hub_id != hub_id:
        return
    held = read_identity(settings.checkpoint.path)
    if held is not None:
        yield held
    for item in load_state(ClientDir(settings.hub.client).state).named(hub_id):
        yield item.identity


def newest_of(every: Iterable[HubIdentity | None]) -> HubIdentity | None:
    """The newest identity, if there is any; Untrusted if they are not of one chain."""
    known = [identity for identity in every if identity is not None]
    return reduce(newest_identity, known) if known else None


app = typer.Typer(
    help="Manage recorder checkpoints: one signature over the ends of all streams.",
    no_args_is_help=True,
)


@app.command()
def create(
    at: ActorOptions,
    force: Annotated[
        bool, typer.Option("--force", help="Create one even if no stream has changed.")
    ] = False,
) -> None:
    """Create a checkpoint of all streams at the hub, verify it and store it.

    Recording continues meanwhile. The client must be a principal that manages streams at the hub
    ([hub] principal).

    Example: veen recorder checkpoint create --config recorder.toml
    """
    services = at.services()
    refuse_changed_map(services.settings)
    with at.session(services.settings) as session:
        refuse_strange_profiles(session.api.streams())
        created = create_checkpoint(
            session, services.checkpoint_store(), services.settings.profile_id(), force=force
        )
        store_identity(services.home, session)
    show({**document(created.checkpoint), "is_new": created.is_new})


@app.command()
def verify(
    at: ActorOptions,
    known: KnownHubOptions,
    file: Annotated[
        Path | None, typer.Argument(metavar="[FILE]", help="Checkpoint file; default: the latest.")
    ] = None,
    offline: Annotated[
        bool,
        typer.Option("--offline", help="Verify signatures, order and anchors without the hub."),
    ] = False,
) -> None:
    """Verify a checkpoint: its signature, and that the log of the hub still extends it.

    Verifies the order of all stored checkpoints, a consistency proof of the hub for each stream,
    and every anchor. The newest identity of the hub decides: stored, pinned by the client, given
    or remembered; without any, the result is unproven (exit code 6): the signing key may have been
    retired before.

    Example: veen recorder checkpoint verify --config recorder.toml
    """
    services = at.services()
    checkpoint_store = services.checkpoint_store()
    checkpoint = (
        read_document(file) if file else checkpoint_store.get(chosen(checkpoint_store, None))
    )
    hub = _newest(services, checkpoint, known)
    verify_documents = _verify_documents(services, checkpoint, hub)
    shown = {
        **document(checkpoint),
        "stored_in_order": verify_documents,
        "anchors": _anchors(services, checkpoint),
    }
    if not offline:
        with at.session(services.settings) as session:
            before, hub = hub, newest_of([hub, session.hub])
            if hub != before:
                _verify_documents(services, checkpoint, hub)
            held = list(verify_on_hub(session, checkpoint))
            gone = list(
                pruned(session, {stream_held.name: stream_held.head_seq for stream_held in held})
            )
        shown["held_by_hub"] = [
            {
                "name": stream_held.name,
                "last_seq": stream_held.last_seq,
                "head_seq": stream_held.head_seq,
            }
            for stream_held in held
        ]
        shown |= _warn_of_pruned(gone)
    show({**shown, "hub_identity_known": hub is not None})
    if hub is None:
        end_unproven(f"checkpoint {checkpoint.checkpoint_id.hex()} is unproven: {NO_IDENTITY}")


@app.command("list")
def list_(config: ConfigOnlyOption = DEFAULT_PATH, fetch: FetchOption = False) -> None:
    """List stored checkpoints, with the number of their anchors.

    Example: veen recorder checkpoint list --config recorder.toml
    """
    services = recorder_services(load(config))
    if fetch:
        services.checkpoint_store().fetch()
    rows = [
        {
            "checkpoint_id": name.checkpoint_id.hex(),
            "created_at": moment(name.created_at),
            "anchors": len(services.refs().of(name.checkpoint_id)),
        }
        for name in services.checkpoint_store().names()
    ]
    lines = [f"{row['created_at']} {row['checkpoint_id']} anchors={row['anchors']}" for row in rows]
    show({"checkpoints": rows}, "\n".join(lines) or "no recorder checkpoint is stored yet")


@app.command()
def latest(
    config: ConfigOnlyOption = DEFAULT_PATH,
    fetch: FetchOption = False,
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="FILE", help="Also write the document to this file."),
    ] = None,
) -> None:
    """Show the latest stored checkpoint, without the hub.

    Example: veen recorder checkpoint latest --config recorder.toml --out last.cbor
    """
    services = recorder_services(load(config))
    if fetch:
        services.checkpoint_store().fetch()
    value = services.checkpoint_store().get(chosen(services.checkpoint_store(), None))
    if out is not None:
        durable.write(out.absolute(), value.encode())
    show(document(value))


@app.command()
def run(
    at: ActorOptions,
    poll_sec: Annotated[
        int, typer.Option("--poll-sec", min=1, metavar="N", help="Poll interval in seconds.")
    ] = 10,
) -> None:
    """Create scheduled checkpoints and anchors until stopped.

    Use it without Airflow. SIGTERM and Ctrl-C stop it after the current step; the next run
    continues. Exits with 3 if a verification fails.

    Example: veen recorder checkpoint run --config recorder.toml
    """
    services, stop = at.services(), Event()
    refuse_changed_map(services.settings)
    for item in (signal.SIGTERM, signal.SIGINT):
        signal.signal(item, lambda _signal, _frame: stop.set())
    runner = CheckpointRunner(
        session=lambda: at.session(services.settings),
        checkpoint_store=services.checkpoint_store(),
        scheduler=services.anchor_scheduler() if services.is_anchoring() else None,
        cadence=services.cadence,
        profile_id=services.settings.profile_id(),
        clock=lambda: int(time.time()),
    )
    for turn in runner.turns(lambda: stop.wait(poll_sec) or stop.is_set()):
        _show_turn(turn)
        if stop.is_set():
            break


def _show_turn(turn: Turn) -> None:
    if turn.error is not None:
        notice(f"no checkpoint this time: {turn.error}")
    if turn.created is not None and turn.created.is_new:
        created = document(turn.created.checkpoint)
        line = f"{created['created_at']} checkpoint {created['checkpoint_id']} ({turn.reason})"
        show_one({"event": "checkpoint", "reason": turn.reason, **created}, [line])
    for anchor in turn.anchors:
        checkpoint_id = anchor.task.checkpoint_id.hex()
        if anchor.ref is not None:
            shown = {"event": "anchor", "checkpoint_id": checkpoint_id, "anchor": anchor.ref.name}
            show_one(shown, [f"anchored {checkpoint_id} as {anchor.ref.name}"])
        elif anchor.error is not None:
            notice(f"not anchored yet, {anchor.task.attempts} attempts: {anchor.error}")


def _warn_of_pruned(gone: list[PrunedStream]) -> dict[str, Any]:
    """Warn of pruned streams, whose proofs still hold, and return them for the document."""
    for stream in gone:
        notice(f"warning: {stream.describe()}")
    return {"pruned": [stream._asdict() for stream in gone]} if gone else {}


def _newest(
    services: RecorderServices, checkpoint: RecorderCheckpoint, known: KnownHubOptions
) -> HubIdentity | None:
    """The newest identity of the configured hub: stored, pinned, given or remembered."""
    if checkpoint.hub_id != services.settings.hub.hub_id:
        raise Untrusted(f"the checkpoint is of hub {checkpoint.hub_id.hex()}, not of [hub] hub_id")
    given = known.newest(checkpoint.hub_id)
    return newest_of([*stored_identities(services.settings, checkpoint.hub_id), given])


def _verify_documents(
    services: RecorderServices, checkpoint: RecorderCheckpoint, hub: HubIdentity | None
) -> int:
    """Verify all stored checkpoints and the requested one; return how many are stored."""
    checkpoint_store, by = services.checkpoint_store(), identity_of_document(checkpoint, hub)
    stored = verify_chain((checkpoint_store.get(name) for name in checkpoint_store.names()), by)
    verify_next(checkpoint, None, by)
    return stored


def _anchors(services: RecorderServices, checkpoint: RecorderCheckpoint) -> list[dict[str, Any]]:
    return list(_checked_anchors(services, checkpoint)) if services.is_anchoring() else []


def _checked_anchors(
    services: RecorderServices, checkpoint: RecorderCheckpoint
) -> Iterator[dict[str, Any]]:
    anchor = services.anchor()
    for ref in services.refs().of(checkpoint.checkpoint_id):
        if kind_of(ref.anchor_ref) == anchor.kind:
            yield anchored_document(ref.name, verify_anchors(anchor, checkpoint, ref.anchor_ref))
        else:
            notice(f"{ref.name} was not checked: anchors of its kind are not configured any more")
