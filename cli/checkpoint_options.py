"""What ``veen recorder checkpoint`` and ``veen anchor`` open, and how they show a checkpoint."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from cli.archive_options import store_credentials
from cli.passphrase import PassphraseFileOption
from cli.recorder_options import PrincipalOption, RecorderConfigOption, RecorderOptions
from recorder import timestamp
from recorder.anchor.port import Anchored
from recorder.checkpoints.door import Door
from recorder.checkpoints.home import CheckpointName
from recorder.checkpoints.shelf import Shelf
from recorder.settings import DEFAULT_PATH, Settings, load
from veen.client.session import Session
from veen.errors import VeenError
from veen.objects.store import open_store
from veen.recorder_checkpoint import RecorderCheckpoint

ConfigOnlyOption = RecorderConfigOption
FetchOption = Annotated[
    bool, typer.Option("--fetch", help="First bring here what only object storage has.")
]


NO_IDENTITY: Final = (
    "no identity document of the hub is known here: one in which the key that signed this has "
    "retired may exist; give the newest you know (--hub-identity, --known-hubs)"
)


class NoCheckpoint(VeenError):
    """There is no recorder checkpoint of that description."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ActorOptions:
    """A recorder, and the identity that asks its hub; without one, as RecorderOptions say."""

    config: RecorderConfigOption = DEFAULT_PATH
    client: Annotated[
        Path | None,
        typer.Option(
            "--client", metavar="DIR", help="Who asks; else [dags.acting], or [hub] client."
        ),
    ] = None
    principal: PrincipalOption = None
    passphrase_file: PassphraseFileOption = None

    def door(self) -> Door:
        return door_of(load(self.config))

    @contextmanager
    def session(self, settings: Settings) -> Iterator[Session]:
        options = RecorderOptions(
            config=self.config,
            client=self.client,
            principal=self.principal,
            passphrase_file=self.passphrase_file,
        )
        with options.open(settings) as client:
            yield client.meet()


def door_of(settings: Settings) -> Door:
    store = None
    if settings.objects is not None:
        store = open_store(settings.objects, store_credentials()).objects
    return Door(settings, store, os.urandom)


def chosen(shelf: Shelf, wanted: str | None) -> CheckpointName:
    """The checkpoint that was named by the beginning of its id, or the latest."""
    names = shelf.names()
    found = [one for one in names if one.checkpoint_id.hex().startswith(wanted or "")]
    if not names:
        raise NoCheckpoint(
            f"{shelf.home.root} holds no recorder checkpoint yet: veen recorder checkpoint create"
        )
    if not found or (wanted and len(found) > 1):
        raise NoCheckpoint(f"{len(found)} of {len(names)} checkpoints begin with {wanted!r}")
    return found[-1]


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


def anchored_document(name: str, found: Anchored) -> dict[str, Any]:
    return {
        "anchor": name,
        "kind": found.kind,
        "root": found.root.hex(),
        "time": moment(found.time),
        "witness": found.witness,
        "place": found.place,
    }


def moment(seconds: int) -> str:
    return timestamp.render(seconds * 1_000)
