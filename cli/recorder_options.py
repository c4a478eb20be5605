"""Options of ``veen recorder``: its configuration, the acting identity, and what they open."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final, NamedTuple

import typer

from cli.options import PassphraseFileOption, passphrase_of, retry_policy, runtime, spare_processes
from recorder.connect import open_recorder_client, reader_key
from recorder.emit.emitter import Emitter
from recorder.index.placement import refuse_changed
from recorder.index.tables import IndexHome
from recorder.settings import DEFAULT_PATH, RecorderSettings, load
from veen.captoken import read_token
from veen.client.client import Client
from veen.keystore.directory import ClientDir

LOCK_WAIT_SEC: Final = 10.0
"""How long a command waits for the lock of an identity, which a DAG's task may hold."""

RecorderConfigOption = Annotated[
    Path,
    typer.Option(
        "--config", envvar="VEEN_RECORDER", metavar="FILE", help="The recorder's settings (TOML)."
    ),
]
PrincipalOption = Annotated[
    str | None,
    typer.Option(
        "--principal", metavar="NAME", help="Its name at the hub; default: [hub] principal."
    ),
]
CapsOption = Annotated[
    list[Path] | None,
    typer.Option("--cap", metavar="FILE", help="Capability to write with; repeatable."),
]


class _Actor(NamedTuple):
    client: Path
    principal: str | None
    passphrase_file: Path | None
    capabilities: tuple[Path, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RecorderOptions:
    """A recorder, and the identity that acts.

    Without one, that of [dags.acting] in the file of a zone: the query service holds [recorder.hub]
    client as long as it runs. In ``recorder.toml`` it is [hub] client.
    """

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
    cap: CapsOption = None

    def settings(self) -> RecorderSettings:
        return load(self.config)

    @contextmanager
    def open(self, settings: RecorderSettings) -> Iterator[Client]:
        who = self._actor(settings)
        directory = ClientDir(who.client.absolute())
        with open_recorder_client(
            settings.hub,
            passphrase=passphrase_of(directory, who.passphrase_file),
            runtime=runtime(),
            directory=directory.root,
            principal=who.principal,
            retry_policy=retry_policy(),
            sealers=spare_processes(),
            lock_wait_sec=LOCK_WAIT_SEC,
        ) as client:
            for path in who.capabilities:
                client.renew(read_token(path))
            yield client

    def _actor(self, settings: RecorderSettings) -> _Actor:
        """The identity: from options, else from [dags.acting], else from [hub]."""
        hub, acting = settings.hub, settings.acting
        given = tuple(self.cap or ())
        if self.client is not None:
            return _Actor(self.client, self.principal, self.passphrase_file, given)
        if acting is not None and acting.client is not None:
            own = () if acting.capability is None else (acting.capability,)
            return _Actor(
                acting.client,
                self.principal or acting.principal,
                self.passphrase_file or acting.passphrase_file,
                given or own,
            )
        file = self.passphrase_file or hub.passphrase_file
        return _Actor(hub.client, self.principal, file, given)

    @contextmanager
    def emitter(self, settings: RecorderSettings, *, migrates: bool = False) -> Iterator[Emitter]:
        """An emitter with the accepted stream map; only a migration may send before that."""
        if not migrates:
            refuse_changed_map(settings)
        recipient = reader_key(settings.hub, runtime().clock())
        with self.open(settings) as client:
            yield Emitter(client, settings.streams, clock=now_ms, recipient=recipient)


def refuse_changed_map(settings: RecorderSettings) -> None:
    """Raise MapChanged if the settings move an event type without an indexed migration."""
    refuse_changed(IndexHome(settings.index.absolute()), settings.streams)


def now_ms() -> int:
    return time.time_ns() // 1_000_000
