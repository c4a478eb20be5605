"""The client of a recorder's settings, and the reader's key of the zone."""

from __future__ import annotations

from pathlib import Path

from recorder.settings import RecorderHubConfig
from veen.client.client import Client
from veen.client.connect import open_client, open_reader_keys, recipient
from veen.client.transport import RetryPolicy
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
    return open_client(
        hub,
        directory or hub.client,
        passphrase=passphrase,
        principal=principal or (hub.principal if directory in (None, hub.client) else None),
        runtime=runtime,
        retry_policy=retry_policy,
        sealers=sealers,
        reader_keys=shared_reader_keys(hub),
        lock_wait_sec=lock_wait_sec,
    )


def shared_reader_keys(hub: RecorderHubConfig) -> tuple[bytes, ...]:
    """The private keys of the zone's reader; empty if not configured."""
    if hub.reader_keys is None:
        return ()
    return open_reader_keys(hub.reader_keys, hub.reader_keys_passphrase_file, "hub.reader_keys")


def reader_key(hub: RecorderHubConfig, now: int) -> bytes | None:
    """The public key that events are sealed to; None where each client seals to itself."""
    return None if hub.reader is None else recipient(hub.reader, now, "hub.reader")
