"""Options of ``veen archive``: a store with the hub in it, and where private keys come from."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final

import typer

from cli.failure import Refused
from cli.options import HubIdOption, key_in_hex
from cli.passphrase import PassphraseFileOption, passphrase_of
from recorder.archive.escrow import (
    Escrow,
    NoKeys,
    Sealer,
    Seeds,
    read_seeds,
    refuse_without_current,
)
from recorder.archive.manifest import ArchiveManifest
from recorder.archive.store import HubArchive, hubs
from veen.keystore import card_file
from veen.keystore.directory import ClientDir
from veen.keystore.directory import Lock as ClientLock
from veen.objects.opened import Store, StoreStatus
from veen.objects.port import Retention
from veen.objects.settings import (
    Credentials,
    StoreSettings,
    credentials_in,
    settings_of,
)
from veen.objects.store import look_at, open_retention, open_store, open_to_read

_OF_TARGET: Final = "VEEN_TO_"
EscrowOption = Annotated[
    Path | None,
    typer.Option("--escrow", metavar="CARD", help="Seal the hub's keys to this identity card."),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreOptions:
    """A store, and which hub of it."""

    store: Annotated[
        str, typer.Option("--store", metavar="URL", help="file:///path or s3://bucket/prefix.")
    ]
    hub_id: HubIdOption = None
    endpoint: Annotated[
        str | None, typer.Option("--endpoint", metavar="URL", help="Of a store like S3.")
    ] = None
    region: Annotated[str, typer.Option("--region", metavar="NAME", help="Of the bucket.")] = (
        "us-east-1"
    )
    addressing: Annotated[
        str, typer.Option("--addressing", metavar="HOW", help="auto, path or virtual.")
    ] = "auto"
    accept_overwriting_store: Annotated[
        bool,
        typer.Option("--accept-overwriting-store", help="Take a store without conditional writes."),
    ] = False

    def open(self) -> Store:
        return open_store(self._settings(), store_credentials())

    def to_read(self) -> Store:
        return open_to_read(self._settings(), store_credentials())

    def looked_at(self) -> StoreStatus:
        return look_at(self._settings(), store_credentials())

    def retention(self) -> Retention:
        """The right to delete, for the one command that does."""
        return open_retention(self._settings(), store_credentials())

    def wanted(self) -> bytes:
        return key_in_hex("--hub-id", self.hub_id or "")

    def archive(self, *, to_write: bool = False) -> HubArchive:
        """The hub that was named, or the only one there is."""
        store = self.open() if to_write else self.to_read()
        if self.hub_id is not None:
            return HubArchive(store, self.wanted())
        found = list(hubs(store))
        if len(found) != 1:
            names = ", ".join(one.hex() for one in found) or "none"
            raise typer.BadParameter(f"name the hub with --hub-id; {self.store} holds: {names}")
        return HubArchive(store, found[0])

    def _settings(self) -> StoreSettings:
        return settings_of(
            self.store,
            endpoint=self.endpoint,
            region=self.region,
            addressing=self.addressing,
            accept_overwriting_store=self.accept_overwriting_store,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetOptions:
    """Another store, which may be another's: where it is not told otherwise, as the first."""

    to_store: Annotated[
        str, typer.Option("--to-store", metavar="URL", help="The other store, as --store.")
    ]
    to_endpoint: Annotated[
        str | None, typer.Option("--to-endpoint", metavar="URL", help="Its S3 endpoint.")
    ] = None
    to_region: Annotated[
        str | None, typer.Option("--to-region", metavar="NAME", help="Its region, if not --region.")
    ] = None
    to_addressing: Annotated[
        str | None, typer.Option("--to-addressing", metavar="HOW", help="If not --addressing.")
    ] = None

    def open(self, source: StoreOptions) -> Store:
        settings = settings_of(
            self.to_store,
            endpoint=self.to_endpoint,
            region=self.to_region or source.region,
            addressing=self.to_addressing or source.addressing,
            accept_overwriting_store=source.accept_overwriting_store,
        )
        return open_store(settings, store_credentials(_OF_TARGET) or store_credentials())


@dataclass(frozen=True, slots=True, kw_only=True)
class KeysOptions:
    """The private keys of a hub: from the escrow of its archive, or from a directory."""

    client: Annotated[
        Path | None,
        typer.Option("--client", metavar="DIR", help="Identity that the escrow is sealed to."),
    ] = None
    keys: Annotated[
        Path | None, typer.Option("--keys", metavar="DIR", help="A copy of the hub's keys/.")
    ] = None
    passphrase_file: PassphraseFileOption = None

    @property
    def is_given(self) -> bool:
        return self.client is not None or self.keys is not None

    def seeds(self, archive: HubArchive) -> Callable[[ArchiveManifest], Seeds]:
        """How to get them, once it is known which ones."""
        if self.client is not None and self.keys is not None:
            raise typer.BadParameter("--client and --keys exclude each other")
        if self.keys is not None:
            folder = self.keys
            return lambda manifest: read_seeds(folder, archive.identity(manifest))
        if self.client is not None:
            readers = self._readers(ClientDir(self.client.absolute()))
            return lambda manifest: _from_escrow(archive, manifest, readers)
        return lambda _manifest: {}

    def _readers(self, directory: ClientDir) -> tuple[bytes, ...]:
        passphrase = passphrase_of(directory, self.passphrase_file)
        with ClientLock(directory):
            return directory.open(passphrase).readers()


def sealer_to(card: Path | None) -> Sealer | None:
    if card is None:
        return None
    recipient = card_file.read(card).recipient(int(time.time()))
    return Sealer(recipient, os.urandom(32))


def _from_escrow(
    archive: HubArchive, manifest: ArchiveManifest, readers: tuple[bytes, ...]
) -> Seeds:
    if manifest.escrow is None:
        raise NoKeys("the archive has no escrow: give the keys with --keys")
    found = archive.document(manifest.escrow, Escrow)
    if found.hub_id != manifest.hub_id:
        raise Refused("the escrow is of another hub")
    seeds = found.open(readers)
    refuse_without_current(archive.identity(manifest), seeds, "the escrow")
    return seeds


def store_credentials(prefix: str = "") -> Credentials | None:
    """From the environment; half of a store's own pair is refused, not replaced by another's."""
    pair = [f"{prefix}AWS_{name}" for name in ("ACCESS_KEY_ID", "SECRET_ACCESS_KEY")]
    if prefix and len([name for name in pair if os.environ.get(name)]) == 1:
        raise Refused(f"of {pair[0]} and {pair[1]} one is not set")
    return credentials_in(os.environ, prefix)
