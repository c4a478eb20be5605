"""Options of ``veen recorder``: its configuration, who acts, and what that lets them open."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from cli.cap import read_token
from cli.options import patience, spare_processes, surroundings
from cli.passphrase import PassphraseFileOption, passphrase_of
from recorder.emit.emitter import Emitter
from recorder.hub_client import open_client, reader_key
from recorder.index.home import IndexHome
from recorder.index.placement import refuse_changed
from recorder.settings import DEFAULT_PATH, Settings, load
from veen.client.client import Client
from veen.keystore.directory import ClientDir

RecorderConfigOption = Annotated[
    Path,
    typer.Option(
        "--config", envvar="VEEN_RECORDER", metavar="FILE", help="The recorder's settings (TOML)."
    ),
]
PrincipalOption = Annotated[
    str | None,
    typer.Option("--principal", metavar="NAME", help="Its name at the hub; else [hub] principal."),
]
CapsOption = Annotated[
    list[Path] | None,
    typer.Option("--cap", metavar="FILE", help="Capability to write with; repeatable."),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class RecorderOptions:
    """A recorder, and the identity that acts; without one, the recorder's own."""

    config: RecorderConfigOption = DEFAULT_PATH
    client: Annotated[
        Path | None, typer.Option("--client", metavar="DIR", help="Who acts; else [hub] client.")
    ] = None
    principal: PrincipalOption = None
    passphrase_file: PassphraseFileOption = None
    cap: CapsOption = None

    def settings(self) -> Settings:
        return load(self.config)

    @contextmanager
    def open(self, settings: Settings) -> Iterator[Client]:
        hub, file = settings.hub, self.passphrase_file
        directory = ClientDir((self.client or hub.client).absolute())
        if self.client is None and file is None:
            file = hub.passphrase_file
        with open_client(
            hub,
            passphrase=passphrase_of(directory, file),
            surroundings=surroundings(),
            directory=directory.root,
            principal=self.principal,
            patience=patience(),
            sealers=spare_processes(),
        ) as client:
            for path in self.cap or ():
                client.renew(read_token(path))
            yield client

    @contextmanager
    def emitter(self, settings: Settings, *, migrates: bool = False) -> Iterator[Emitter]:
        """One that sends by the accepted stream map; only a migration may come before that."""
        if not migrates:
            refuse_changed(IndexHome(settings.index.absolute()), settings.streams)
        recipient = reader_key(settings.hub, surroundings().clock())
        with self.open(settings) as client:
            yield Emitter(client, settings.streams, clock=now_ms, recipient=recipient)


def now_ms() -> int:
    return time.time_ns() // 1_000_000
