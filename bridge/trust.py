"""Whom a zone believes: pinned hub identities and exporters' keys, as files and never a network.

The directory holds, for each hub, ``hub-<hub_id>.cbor`` with ``hub-<hub_id>.sig`` (the hub's own
identity files under these names) and, for each exporter, ``exporter-<name>.pub`` with its public
key in hex.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from veen import durable
from veen.errors import Malformed, Untrusted
from veen.hub_identity import HubIdentity

_HUB: Final = re.compile(r"hub-([0-9a-f]{64})\.cbor")
_EXPORTER: Final = re.compile(r"exporter-([a-z0-9.-]{1,40})\.pub")
_PUBLIC: Final = re.compile(r"[0-9a-f]{64}\n?")
_MAX_BYTES: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class TrustStore:
    """Hubs by hub_id, and the names of exporters by public key."""

    hubs: Mapping[bytes, HubIdentity] = field(default_factory=dict)
    exporters: Mapping[bytes, str] = field(default_factory=dict)

    @classmethod
    def read(cls, directory: Path) -> TrustStore:
        hubs: dict[bytes, HubIdentity] = {}
        exporters: dict[bytes, str] = {}
        for path in sorted(directory.iterdir()):
            if found := _HUB.fullmatch(path.name):
                identity = _read_hub(path, bytes.fromhex(found[1]))
                hubs[identity.hub_id] = identity
            elif found := _EXPORTER.fullmatch(path.name):
                exporters[_read_public(path)] = found[1]
        return cls(hubs, exporters)


def pin_hub(directory: Path, identity: HubIdentity, signature: bytes) -> None:
    """Add a hub, or its identity with newer keys; its chain of keys is checked first."""
    identity.verify(signature)
    stem = directory / f"hub-{identity.hub_id.hex()}"
    # The signature first: an identity without its signature is refused, not half believed.
    durable.write(stem.with_suffix(".sig"), signature)
    durable.write(stem.with_suffix(".cbor"), identity.encode())


def pin_exporter(directory: Path, name: str, public: bytes) -> None:
    path = directory / f"exporter-{name}.pub"
    if not _EXPORTER.fullmatch(path.name) or len(public) != 32:
        raise Malformed(f"{name!r}: an exporter has a name of a-z, 0-9, . and -, and a public key")
    durable.write(path, public.hex().encode() + b"\n")


def _read_hub(path: Path, hub_id: bytes) -> HubIdentity:
    identity = HubIdentity.decode(_read(path))
    identity.verify(_read(path.with_suffix(".sig")))
    if identity.hub_id != hub_id:
        raise Untrusted(f"{path.name} holds another hub; pin it again from the hub's own files")
    return identity


def _read_public(path: Path) -> bytes:
    text = _read(path).decode("ascii", "replace")
    if not _PUBLIC.fullmatch(text):
        raise Malformed(f"{path.name} is not a public key of 64 hex digits")
    return bytes.fromhex(text.strip())


def _read(path: Path) -> bytes:
    with path.open("rb") as file:
        raw = file.read(_MAX_BYTES + 1)
    if len(raw) > _MAX_BYTES:
        raise Malformed(f"{path.name} is longer than {_MAX_BYTES} bytes")
    return raw
