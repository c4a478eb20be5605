"""Options that many commands share, and what they open: a hub, or a client at a hub."""

from __future__ import annotations

import os
import ssl
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Final

import typer

from cli import interrupt
from cli.console import manner, notice
from cli.passphrase import PassphraseFileOption, passphrase_of
from veen.client import trust
from veen.client.address import resolve
from veen.client.client import Client
from veen.client.credentials import Anonymous, Bearer, Credentials, Principal
from veen.client.hub_api import HubApi
from veen.client.session import FIRST_CONTACT
from veen.client.state import KnownHub, load
from veen.client.surroundings import Surroundings
from veen.client.transport import Patience, Transport
from veen.keystore.directory import ClientDir
from veen.profile import Profile
from veen.sign import PrivateKey
from veen.tooling import StatusResponse

DEFAULT_HUB: Final = "http://127.0.0.1:8080"
_KEY_BYTES: Final = 32

HubOption = Annotated[
    str,
    typer.Option("--hub", envvar="VEEN_HUB", metavar="HUB", help="Its address or data directory."),
]
ClientOption = Annotated[
    Path,
    typer.Option("--client", envvar="VEEN_CLIENT", metavar="DIR", help="Directory of the client."),
]
HubIdOption = Annotated[
    str | None, typer.Option("--hub-id", metavar="HEX", help="The hub it must be.")
]
CaOption = Annotated[
    Path | None, typer.Option("--ca", metavar="FILE", help="Authority of the hub's certificate.")
]
PrincipalOption = Annotated[
    str | None, typer.Option("--principal", metavar="NAME", help="Sign reads under this name.")
]
TokenFileOption = Annotated[
    Path | None, typer.Option("--token-file", metavar="FILE", help="Bearer token for reads.")
]
StreamOption = Annotated[
    str, typer.Option("--stream", metavar="NAME", help="Name of a stream, or its id in hex.")
]
DataDirOption = Annotated[
    Path, typer.Option("--data-dir", metavar="DIR", help="The directory that is the hub.")
]
ConfigOption = Annotated[
    Path | None, typer.Option("--config", metavar="FILE", help="The hub's settings (TOML).")
]
EpochSecOption = Annotated[
    int, typer.Option("--epoch-sec", min=0, metavar="N", help="Epoch of the stream's profile.")
]
PadBlockOption = Annotated[
    int, typer.Option("--pad-block", min=0, metavar="N", help="Padding of the stream's profile.")
]
DEFAULT_DATA_DIR: Final = Path("veen-data")


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileOptions:
    """The profile of a stream that has not the hub's default one."""

    epoch_sec: EpochSecOption = 0
    pad_block: PadBlockOption = 0

    def profile(self) -> Profile:
        return Profile(epoch_sec=self.epoch_sec, pad_block=self.pad_block)


@dataclass(frozen=True, slots=True, kw_only=True)
class HubOptions:
    """A hub to ask, as nobody or as the bearer of a token."""

    hub: HubOption = DEFAULT_HUB
    hub_id: HubIdOption = None
    ca: CaOption = None
    token_file: TokenFileOption = None

    def credentials(self) -> Credentials:
        return bearer(self.token_file)

    @contextmanager
    def open(self, *, once: bool = False) -> Iterator[HubApi]:
        """With ``once``, no request is repeated: a hub that is not ready now is the answer."""
        transport = Transport(
            resolve(self.hub).url,
            surroundings=surroundings(),
            credentials=self.credentials(),
            patience=replace(patience(), attempts=1) if once else patience(),
            tls=tls(self.ca),
        )
        try:
            yield HubApi(transport)
        finally:
            transport.close()

    def status(self) -> StatusResponse:
        """What the hub says of itself, once it is the hub that it has to be."""
        with self.open() as api:
            found = api.status()
        offered, known = found.identity(), resolve(self.hub).identity
        if self.hub_id is not None:
            trust.pinned(offered, key_in_hex("--hub-id", self.hub_id))
        if known is not None:
            trust.followed(known, offered)
        return found


def surroundings() -> Surroundings:
    return Surroundings(clock=lambda: int(time.time()), random=os.urandom, sleep=interrupt.sleep)


def patience() -> Patience:
    limit = manner().timeout_ms
    return Patience() if limit is None else Patience(timeout_sec=limit / 1000)


def tls(ca: Path | None) -> ssl.SSLContext | None:
    """Trust in one authority; None for those of the system."""
    if ca is None:
        return None
    try:
        return ssl.create_default_context(cafile=ca)
    except (OSError, ssl.SSLError) as error:
        raise typer.BadParameter(f"--ca {ca}: {error}") from error


def key_in_hex(option: str, text: str) -> bytes:
    """32 bytes as a command line writes them."""
    try:
        found = bytes.fromhex(text)
    except ValueError:
        found = b""
    if len(found) != _KEY_BYTES:
        raise typer.BadParameter(f"{option}: {text!r} is not 64 hex digits")
    return found


def spare_processes() -> int:
    """One for work that can be done beside, where there is a second processor to do it."""
    return min((os.cpu_count() or 1) - 1, 1)


def bearer(token_file: Path | None) -> Credentials:
    if token_file is None:
        return Anonymous()
    token = token_file.read_bytes().strip()
    if not token.isascii() or not token.decode().isprintable():
        raise typer.BadParameter(f"{token_file} is to hold one token of printable ASCII")
    return Bearer(token.decode())


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientOptions:
    """A client at a hub."""

    client: ClientOption
    hub: HubOption = DEFAULT_HUB
    hub_id: HubIdOption = None
    ca: CaOption = None
    principal: PrincipalOption = None
    token_file: TokenFileOption = None
    passphrase_file: PassphraseFileOption = None

    @contextmanager
    def open(self) -> Iterator[Client]:
        directory = ClientDir(self.client.absolute())
        passphrase = passphrase_of(directory, self.passphrase_file)
        known = load(directory.state).hubs
        reader = _Reader(bearer(self.token_file))
        with Client.open(
            directory.root,
            self.hub,
            passphrase=passphrase,
            hub_id=key_in_hex("--hub-id", self.hub_id) if self.hub_id else None,
            credentials=reader,
            patience=patience(),
            tls=tls(self.ca),
            surroundings=surroundings(),
        ) as client:
            if self.principal is not None:
                reader.sign_as(self.principal, client.session.identity.client)
            _tell_of_first_contact(client, known)
            yield client


class _Reader:
    """Who reads; a principal's key is there only once its identity is open."""

    def __init__(self, credentials: Credentials) -> None:
        self._credentials = credentials

    def headers(self, method: str, url: str, body: bytes) -> dict[str, str]:
        return self._credentials.headers(method, url, body)

    def sign_as(self, name: str, key: PrivateKey) -> None:
        around = surroundings()
        self._credentials = Principal(name, key, around.clock, around.random)


def _tell_of_first_contact(client: Client, known: Mapping[str, KnownHub]) -> None:
    url = client.session.api.transport.url
    pin = client.session.state.hubs.get(url)
    if pin is not None and url not in known and pin.origin == FIRST_CONTACT:
        notice(
            f"First contact: {url} is now pinned as hub {pin.identity.hub_id.hex()}. "
            "Compare this with what its operator reads from: veen hub key"
        )
