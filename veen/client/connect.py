"""Opening a client at the hub that a configuration names, and the keys that it names."""

from __future__ import annotations

import ssl
from collections.abc import Sequence
from pathlib import Path

from veen.client.client import Client
from veen.client.credentials import Anonymous, Credentials, Principal
from veen.client.transport import RetryPolicy
from veen.errors import VeenError
from veen.keystore.card import read_card
from veen.keystore.directory import ClientDir
from veen.keystore.passphrase import read_passphrase
from veen.system.config import BadSettings, HubConfig
from veen.system.environment import Runtime


def open_client(
    hub: HubConfig,
    directory: Path,
    *,
    passphrase: bytes | None,
    principal: str | None,
    runtime: Runtime,
    retry_policy: RetryPolicy | None = None,
    sealers: int = 0,
    reader_keys: Sequence[bytes] = (),
    lock_wait_sec: float = 0,
) -> Client:
    """Open a client directory at the pinned hub; requests are signed as ``principal``, if given."""
    credentials = _DeferredCredentials()
    client = Client.open(
        directory,
        hub.url,
        passphrase=passphrase,
        hub_id=hub.hub_id,
        credentials=credentials,
        retry_policy=retry_policy,
        tls=tls_context(hub),
        runtime=runtime,
        sealers=sealers,
        reader_keys=reader_keys,
        lock_wait_sec=lock_wait_sec,
    )
    if principal is not None:
        key = client.session.identity.client
        credentials.credentials = Principal(principal, key, runtime.clock, runtime.random)
    return client


def open_reader_keys(client: Path, passphrase_file: Path | None, name: str) -> tuple[bytes, ...]:
    """The private keys of a keystore, read without its lock; ``name`` is its key in the
    configuration."""
    passphrase = None if passphrase_file is None else read_passphrase(passphrase_file)
    try:
        return ClientDir(client).reader_keys(passphrase)
    except VeenError as error:
        raise BadSettings(f"{name} = {str(client)!r}: {error}") from error


def recipient(card: Path, now: int, name: str) -> bytes:
    """The public key of a card to seal to; ``name`` is its key in the configuration."""
    try:
        return read_card(card).recipient(now)
    except VeenError as error:
        raise BadSettings(f"{name} = {str(card)!r}: {error}") from error


def tls_context(hub: HubConfig) -> ssl.SSLContext | None:
    """TLS with the hub's private certificate authority; None without one."""
    if hub.ca is None:
        return None
    try:
        return ssl.create_default_context(cafile=hub.ca)
    except (OSError, ssl.SSLError) as error:
        raise BadSettings(f"hub.ca = {str(hub.ca)!r}: {error}") from error


class _DeferredCredentials:
    """Credentials that are set once the identity is open, which has the key of its principal."""

    def __init__(self) -> None:
        self.credentials: Credentials = Anonymous()

    def headers(self, method: str, url: str, body: bytes) -> dict[str, str]:
        return self.credentials.headers(method, url, body)
