"""Options that many commands share: a hub, a client at a hub, a passphrase, a key or card."""

from __future__ import annotations

import os
import re
import ssl
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from cli.console import global_options, notice
from veen.client.credentials import Anonymous, Bearer, Credentials, Principal
from veen.client.hub_api import HubApi
from veen.client.session import FIRST_CONTACT, KnownHub, load_state
from veen.client.transport import RetryPolicy, Transport, resolve_address
from veen.crypto import SigningKey
from veen.errors import Malformed, Untrusted
from veen.hub_identity import followed_identity, pinned_identity
from veen.keystore.card import IdentityCard
from veen.keystore.directory import ClientDir
from veen.keystore.passphrase import read_passphrase
from veen.label import Profile
from veen.system.config import BadSettings
from veen.system.environment import Runtime
from veen.system.signals import interruptible_sleep
from veen.wire.api import StatusResponse

if TYPE_CHECKING:
    from veen.client.client import Client

VARIABLE: Final = "VEEN_PASSPHRASE"

PassphraseFileOption = Annotated[
    Path | None,
    typer.Option(
        "--passphrase-file", metavar="FILE", help=f"Else ${VARIABLE}, or it is asked for."
    ),
]
_WAYS: Final = f"a passphrase is needed: give --passphrase-file, set {VARIABLE}, or use a terminal"
DEFAULT_HUB: Final = "http://127.0.0.1:8080"
_KEY_BYTES: Final = 32
DEFAULT_DATA_DIR: Final = Path("veen-data")
_KEY = re.compile(r"[0-9a-fA-F]{64}")


def new_passphrase(file: Path | None) -> bytes:
    """The passphrase of a new identity; a prompt asks for it twice."""
    passphrase = _given(file) or _asked("Passphrase for the new keystore", twice=True)
    if not passphrase:
        raise typer.BadParameter(f"{_WAYS}, or leave the keys unprotected with --insecure-plain")
    return passphrase


def passphrase_of(client: ClientDir, file: Path | None) -> bytes | None:
    """The passphrase of an identity; None if its keystore is not encrypted."""
    if client.sealed().is_plain:
        if file is not None:
            raise typer.BadParameter(f"{client.keystore} is plain: leave out --passphrase-file")
        return None
    passphrase = _given(file) or _asked(f"Passphrase of {client.keystore}", twice=False)
    if not passphrase:
        raise typer.BadParameter(_WAYS)
    return passphrase


def _given(file: Path | None) -> bytes | None:
    if file is not None:
        return _read(file)
    # Raw bytes, so that every source gives the same passphrase.
    return os.environb.get(VARIABLE.encode()) or None


def _read(file: Path) -> bytes:
    try:
        return read_passphrase(file)
    except BadSettings as error:
        raise typer.BadParameter(str(error)) from error


def _asked(what: str, *, twice: bool) -> bytes | None:
    if not sys.stdin.isatty():
        return None
    said: str = typer.prompt(what, hide_input=True, confirmation_prompt=twice, err=True)
    return os.fsencode(said)


HubOption = Annotated[
    str,
    typer.Option(
        "--hub", envvar="VEEN_HUB", metavar="HUB", help="Address or data directory of the hub."
    ),
]
ClientOption = Annotated[
    Path,
    typer.Option("--client", envvar="VEEN_CLIENT", metavar="DIR", help="Directory of the client."),
]
HubIdOption = Annotated[
    str | None, typer.Option("--hub-id", metavar="HEX", help="Expected hub_id.")
]
CaOption = Annotated[
    Path | None, typer.Option("--ca", metavar="FILE", help="CA certificate of the hub (PEM).")
]
PrincipalOption = Annotated[
    str | None, typer.Option("--principal", metavar="NAME", help="Principal to sign reads as.")
]
TokenFileOption = Annotated[
    Path | None, typer.Option("--token-file", metavar="FILE", help="Bearer token for reads.")
]
StreamOption = Annotated[
    str, typer.Option("--stream", metavar="NAME", help="Name of a stream, or its id in hex.")
]
DataDirOption = Annotated[
    Path, typer.Option("--data-dir", metavar="DIR", help="Data directory of the hub.")
]
ConfigOption = Annotated[
    Path | None, typer.Option("--config", metavar="FILE", help="The hub's settings (TOML).")
]
EpochSecOption = Annotated[
    int, typer.Option("--epoch-sec", min=0, metavar="N", help="epoch_sec of the stream's profile.")
]
PadBlockOption = Annotated[
    int, typer.Option("--pad-block", min=0, metavar="N", help="pad_block of the stream's profile.")
]


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileOptions:
    """The profile of a stream, if it is not the hub's default."""

    epoch_sec: EpochSecOption = 0
    pad_block: PadBlockOption = 0

    def profile(self) -> Profile:
        return Profile(epoch_sec=self.epoch_sec, pad_block=self.pad_block)


@dataclass(frozen=True, slots=True, kw_only=True)
class HubOptions:
    """A hub, without credentials or with a bearer token."""

    hub: HubOption = DEFAULT_HUB
    hub_id: HubIdOption = None
    ca: CaOption = None
    token_file: TokenFileOption = None

    def credentials(self) -> Credentials:
        return bearer(self.token_file)

    @contextmanager
    def open(self, *, once: bool = False) -> Iterator[HubApi]:
        """A hub API; with ``once``, requests are not retried."""
        transport = Transport(
            resolve_address(self.hub).url,
            runtime=runtime(),
            credentials=self.credentials(),
            retry_policy=replace(retry_policy(), attempts=1) if once else retry_policy(),
            tls=tls(self.ca),
        )
        try:
            yield HubApi(transport)
        finally:
            transport.close()

    def status(self) -> StatusResponse:
        """The status of the hub, after verifying that it is the expected hub."""
        with self.open() as api:
            status = api.status()
        offered, known = status.identity(), resolve_address(self.hub).identity
        if self.hub_id is not None:
            pinned_identity(offered, key_in_hex("--hub-id", self.hub_id))
        if known is not None:
            followed_identity(known, offered)
        return status


def runtime() -> Runtime:
    return Runtime(clock=lambda: int(time.time()), random=os.urandom, sleep=interruptible_sleep)


def retry_policy() -> RetryPolicy:
    limit = global_options().timeout_ms
    return RetryPolicy() if limit is None else RetryPolicy(timeout_sec=limit / 1000)


def tls(ca: Path | None) -> ssl.SSLContext | None:
    """A TLS context for a private authority; None for those of the system."""
    if ca is None:
        return None
    try:
        return ssl.create_default_context(cafile=ca)
    except (OSError, ssl.SSLError) as error:
        raise typer.BadParameter(f"--ca {ca}: {error}") from error


def key_in_hex(option: str, text: str) -> bytes:
    """32 bytes from hex digits of a command line."""
    try:
        key = bytes.fromhex(text)
    except ValueError:
        key = b""
    if len(key) != _KEY_BYTES:
        raise typer.BadParameter(f"{option} {text!r}: expected 64 hex digits")
    return key


def spare_processes() -> int:
    """The number of worker processes: one if there is a second CPU."""
    return min((os.cpu_count() or 1) - 1, 1)


def bearer(token_file: Path | None) -> Credentials:
    if token_file is None:
        return Anonymous()
    token = token_file.read_bytes().strip()
    if not token.isascii() or not token.decode().isprintable():
        raise typer.BadParameter(f"{token_file}: expected one token of printable ASCII")
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
        # Imported here, since most commands at a hub have no client.
        from veen.client.client import Client  # noqa: PLC0415

        directory = ClientDir(self.client.absolute())
        passphrase = passphrase_of(directory, self.passphrase_file)
        known = load_state(directory.state).hubs
        reader = _Reader(bearer(self.token_file))
        with Client.open(
            directory.root,
            self.hub,
            passphrase=passphrase,
            hub_id=key_in_hex("--hub-id", self.hub_id) if self.hub_id else None,
            credentials=reader,
            retry_policy=retry_policy(),
            tls=tls(self.ca),
            runtime=runtime(),
        ) as client:
            if self.principal is not None:
                reader.sign_as(self.principal, client.session.identity.client)
            _warn_of_first_contact(client, known)
            yield client


class _Reader:
    """Credentials that are set once the identity is open, which has the key of its principal."""

    def __init__(self, credentials: Credentials) -> None:
        self._credentials = credentials

    def headers(self, method: str, url: str, body: bytes) -> dict[str, str]:
        return self._credentials.headers(method, url, body)

    def sign_as(self, name: str, key: SigningKey) -> None:
        around = runtime()
        self._credentials = Principal(name, key, around.clock, around.random)


def _warn_of_first_contact(client: Client, known: Mapping[str, KnownHub]) -> None:
    url = client.session.api.transport.url
    pin = client.session.state.hubs.get(url)
    if pin is not None and url not in known and pin.origin == FIRST_CONTACT:
        notice(
            f"First contact: {url} is now pinned as hub {pin.identity.hub_id.hex()}. "
            "Compare this with what its operator reads from: veen hub key"
        )


def client_id_of(named: str) -> bytes:
    """A client_id from a card, a client directory, or hex digits."""
    return bytes.fromhex(named) if _KEY.fullmatch(named) else _card(named).client_id


def recipient_of(named: str) -> bytes:
    """The key to seal to, from a card that has not expired."""
    return _card(named).recipient(runtime().clock())


def _card(named: str) -> IdentityCard:
    path = Path(named)
    file = ClientDir(path).card if path.is_dir() else path
    try:
        card = IdentityCard.decode(file.read_bytes())
        card.verify()
    except (Malformed, Untrusted) as error:
        raise type(error)(f"{file} is no sound identity card: {error}") from error
    return card
