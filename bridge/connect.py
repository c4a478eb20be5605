"""Clients for the identities of one side of a bridge, each at the hub of its own zone."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from bridge.settings import IdentitySettings, ReaderKeys
from veen.captoken import CapToken
from veen.client.client import Client
from veen.client.connect import open_client, open_reader_keys
from veen.client.transport import RetryPolicy
from veen.errors import Malformed, VeenError
from veen.keystore.directory import ClientDir
from veen.keystore.passphrase import read_passphrase
from veen.system.config import BadSettings, HubConfig
from veen.system.environment import Runtime


def open_bridge_client(
    hub: HubConfig,
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
    client = open_client(
        hub,
        identity.client,
        passphrase=passphrase or passphrase_of(identity),
        principal=identity.principal,
        runtime=runtime,
        retry_policy=retry_policy,
        sealers=sealers,
        reader_keys=shared_reader_keys(keys),
    )
    if identity.capability is not None:
        client.renew(read_capability(identity.capability))
    return client


def passphrase_of(identity: IdentitySettings) -> bytes | None:
    """The passphrase in the identity's file; None if its keystore is not encrypted."""
    return None if identity.passphrase_file is None else read_passphrase(identity.passphrase_file)


def reader_keys(identity: IdentitySettings) -> Sequence[bytes]:
    """The private keys that open what is sealed to an identity, without a hub."""
    return ClientDir(identity.client).reader_keys(passphrase_of(identity))


def shared_reader_keys(keys: ReaderKeys | None) -> Sequence[bytes]:
    """The private keys of the zone's reader; none if it is not configured."""
    return (
        () if keys is None else open_reader_keys(keys.client, keys.passphrase_file, "reader_keys")
    )


def author_of(identity: IdentitySettings) -> bytes | None:
    """The client_id that an identity writes as; None if its keystore cannot be opened here."""
    try:
        return ClientDir(identity.client).open(passphrase_of(identity)).client_id
    except (VeenError, OSError):
        return None


def read_capability(path: Path) -> CapToken:
    try:
        return CapToken.decode(path.read_bytes())
    except Malformed as error:
        raise BadSettings(f"{path}: expected a capability: {error}") from error
