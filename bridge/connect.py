"""Clients for the identities of one side of a bridge, each at the hub of its own zone."""

from __future__ import annotations

import ssl
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from bridge.settings import BridgeHubConfig, IdentitySettings, ReaderKeys
from veen.captoken import CapToken
from veen.client.client import Client
from veen.client.credentials import Anonymous, Credentials, Principal
from veen.client.transport import RetryPolicy
from veen.errors import Malformed, VeenError
from veen.keystore.card import read_card
from veen.keystore.directory import ClientDir
from veen.system.config import BadSettings
from veen.system.environment import Runtime

_MAX_PASSPHRASE: Final = 4096


def open_bridge_client(
    hub: BridgeHubConfig,
    identity: IdentitySettings,
    *,
    runtime: Runtime,
    passphrase: bytes | None = None,
    retry_policy: RetryPolicy | None = None,
    sealers: int = 0,
    keys: ReaderKeys | None = None,
) -> Client:
    """A client with the identity at the pinned hub, and its capability if it has one.

    ``keys`` are further keys to open messages with. Without ``passphrase`` that of the identity's
    file is used, if it has one.
    """
    credentials = _DeferredCredentials()
    client = Client.open(
        identity.client,
        hub.url,
        passphrase=passphrase or read_passphrase(identity),
        hub_id=hub.hub_id,
        credentials=credentials,
        retry_policy=retry_policy,
        tls=tls_of(hub),
        runtime=runtime,
        sealers=sealers,
        reader_keys=shared_reader_keys(keys),
    )
    if identity.principal is not None:
        key = client.session.identity.client
        credentials.credentials = Principal(identity.principal, key, runtime.clock, runtime.random)
    if identity.capability is not None:
        client.renew(read_capability(identity.capability))
    return client


def read_passphrase(identity: IdentitySettings | ReaderKeys) -> bytes | None:
    """The line of the identity's passphrase file; None if its keystore is not encrypted."""
    if identity.passphrase_file is None:
        return None
    with identity.passphrase_file.open("rb") as file:
        raw = file.read(_MAX_PASSPHRASE + 1)
    line = raw.removesuffix(b"\n").removesuffix(b"\r")
    if not line or len(raw) > _MAX_PASSPHRASE or b"\n" in line:
        raise BadSettings(
            f"{identity.passphrase_file}: expected one line of at most {_MAX_PASSPHRASE} bytes"
        )
    return line


def reader_keys(identity: IdentitySettings) -> Sequence[bytes]:
    """The private keys that open what is sealed to an identity, without a hub."""
    return ClientDir(identity.client).reader_keys(read_passphrase(identity))


def shared_reader_keys(keys: ReaderKeys | None) -> Sequence[bytes]:
    """The private keys of the zone's reader, read without a lock; none if it is not configured."""
    if keys is None:
        return ()
    try:
        return ClientDir(keys.client).reader_keys(read_passphrase(keys))
    except VeenError as error:
        raise BadSettings(f"reader_keys = {str(keys.client)!r}: {error}") from error


def author_of(identity: IdentitySettings) -> bytes | None:
    """The client_id that an identity writes as; None if its keystore cannot be opened here."""
    try:
        return ClientDir(identity.client).open(read_passphrase(identity)).client_id
    except (VeenError, OSError):
        return None


def recipient(card: Path, now: int) -> bytes:
    """The public key of a card to seal to."""
    try:
        return read_card(card).recipient(now)
    except VeenError as error:
        raise BadSettings(f"{card}: {error}") from error


def read_capability(path: Path) -> CapToken:
    try:
        return CapToken.decode(path.read_bytes())
    except Malformed as error:
        raise BadSettings(f"{path}: expected a capability: {error}") from error


class _DeferredCredentials:
    """Credentials that are set once the identity is open, which has the key of its principal."""

    def __init__(self) -> None:
        self.credentials: Credentials = Anonymous()

    def headers(self, method: str, url: str, body: bytes) -> dict[str, str]:
        return self.credentials.headers(method, url, body)


def tls_of(hub: BridgeHubConfig) -> ssl.SSLContext | None:
    ca = hub.ca
    if ca is None:
        return None
    try:
        return ssl.create_default_context(cafile=ca)
    except (OSError, ssl.SSLError) as error:
        raise BadSettings(f"hub.ca = {str(ca)!r}: {error}") from error
