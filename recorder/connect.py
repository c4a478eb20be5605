"""Opening the client for the hub that the settings name, and the reader's key of the zone."""

from __future__ import annotations

import ssl
from pathlib import Path

from recorder.settings import RecorderHubConfig
from veen.client.client import Client
from veen.client.credentials import Anonymous, Credentials, Principal
from veen.client.transport import RetryPolicy
from veen.errors import VeenError
from veen.keystore.card import read_card
from veen.keystore.directory import ClientDir
from veen.system.config import BadSettings
from veen.system.environment import Runtime


def open_recorder_client(
    hub: RecorderHubConfig,
    *,
    passphrase: bytes | None,
    runtime: Runtime,
    directory: Path | None = None,
    principal: str | None = None,
    retry_policy: RetryPolicy | None = None,
    sealers: int = 0,
    lock_wait_sec: float = 0,
) -> Client:
    """Open the client of the settings, or of another directory, at the pinned hub.

    Requests are signed as ``principal``; without one, the principal of the settings is used for the
    identity of the settings.
    """
    credentials = _LateCredentials()
    client = Client.open(
        directory or hub.client,
        hub.url,
        passphrase=passphrase,
        hub_id=hub.hub_id,
        credentials=credentials,
        retry_policy=retry_policy,
        tls=_tls(hub.ca),
        runtime=runtime,
        sealers=sealers,
        reader_keys=shared_reader_keys(hub),
        lock_wait_sec=lock_wait_sec,
    )
    name = principal or (hub.principal if directory in (None, hub.client) else None)
    if name is not None:
        key = client.session.identity.client
        credentials.credentials = Principal(name, key, runtime.clock, runtime.random)
    return client


def shared_reader_keys(hub: RecorderHubConfig) -> tuple[bytes, ...]:
    """The private keys of the zone's reader, read without a lock; empty if not configured."""
    if hub.reader_keys is None:
        return ()
    file = hub.reader_keys_passphrase_file
    passphrase = None if file is None else file.read_bytes().removesuffix(b"\n").removesuffix(b"\r")
    try:
        return ClientDir(hub.reader_keys).reader_keys(passphrase)
    except VeenError as error:
        raise BadSettings(f"hub.reader_keys = {str(hub.reader_keys)!r}: {error}") from error


def reader_key(hub: RecorderHubConfig, now: int) -> bytes | None:
    """The public key that events are sealed to; None where each client seals to itself."""
    if hub.reader is None:
        return None
    try:
        return read_card(hub.reader).recipient(now)
    except VeenError as error:
        raise BadSettings(f"hub.reader = {str(hub.reader)!r}: {error}") from error


class _LateCredentials:
    """Credentials that are set after the identity is opened, which holds the principal's key."""

    def __init__(self) -> None:
        self.credentials: Credentials = Anonymous()

    def headers(self, method: str, url: str, body: bytes) -> dict[str, str]:
        return self.credentials.headers(method, url, body)


def _tls(ca: Path | None) -> ssl.SSLContext | None:
    if ca is None:
        return None
    try:
        return ssl.create_default_context(cafile=ca)
    except (OSError, ssl.SSLError) as error:
        raise BadSettings(f"hub.ca = {str(ca)!r}: {error}") from error
