"""The trust store of a zone: pinned hub identities and exporters' keys, in files.

The directory holds, for each hub, ``hub-<hub_id>.cbor`` with ``hub-<hub_id>.sig`` (the hub's own
identity files under these names), for each exporter ``exporter-<name>.pub`` with its public key in
hex, and for each hub_id or public key that is no longer trusted ``revoked-<hex>.txt`` with the
reason. What is revoked counts as never pinned, also for old carriers, since a stolen key can sign
any date. Changes are entered in ``changes.txt`` with time and operator; the next import records
them in bridge/offline/log.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, NamedTuple

from bridge.errors import printable
from veen.errors import Malformed, Untrusted
from veen.hub_identity import HubIdentity
from veen.system import durable

_HUB: Final = re.compile(r"hub-([0-9a-f]{64})\.cbor")
_EXPORTER: Final = re.compile(r"exporter-([a-z0-9.-]{1,40})\.pub")
_REVOKED: Final = re.compile(r"revoked-([0-9a-f]{64})\.txt")
_PUBLIC: Final = re.compile(r"[0-9a-f]{64}\n?")
_MAX_BYTES: Final = 1 << 20
_KEY_BYTES: Final = 32
FILE: Final = "changes.txt"
_TIME: Final = "%Y-%m-%dT%H:%M:%SZ"
_LINE: Final = re.compile(r"([0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}Z) (.+?): (.+)")


@dataclass(frozen=True, slots=True)
class TrustStore:
    """Hubs by hub_id, names of exporters by public key, and the reasons of revocations."""

    hubs: Mapping[bytes, HubIdentity] = field(default_factory=dict)
    exporters: Mapping[bytes, str] = field(default_factory=dict)
    revoked: Mapping[bytes, str] = field(default_factory=dict)
    files: tuple[str, ...] = ()
    """A line for each file; a key that is pinned and revoked has two."""

    @classmethod
    def read(cls, directory: Path) -> TrustStore:
        hubs: dict[bytes, HubIdentity] = {}
        exporters: dict[bytes, str] = {}
        revoked: dict[bytes, str] = {}
        for path in sorted(directory.iterdir()):
            if match := _HUB.fullmatch(path.name):
                identity = _read_hub(path, bytes.fromhex(match[1]))
                hubs[identity.hub_id] = identity
            elif match := _EXPORTER.fullmatch(path.name):
                exporters[_read_public(path)] = match[1]
            elif match := _REVOKED.fullmatch(path.name):
                revoked[bytes.fromhex(match[1])] = printable(
                    read_file(path).decode(errors="replace")
                )
        files = (
            *map(hub_line, hubs.values()),
            *(exporter_line(name, key) for key, name in exporters.items()),
            *(revoked_line(what, why) for what, why in revoked.items()),
        )
        exporters = {key: name for key, name in exporters.items() if key not in revoked}
        return cls(_without_revoked(hubs, revoked), exporters, revoked, files)

    def with_identity(self, identity: HubIdentity) -> TrustStore:
        """The store with a verified identity of a trusted hub; an older identity changes nothing.

        The trust directory is not changed.
        """
        held = self.hubs.get(identity.hub_id)
        if held is None:
            raise Untrusted(
                f"hub {identity.hub_id.hex()} is not in the trust store: pin it first, with "
                "veen bridge keys pin"
            )
        if len(identity.hub_keys) < len(held.hub_keys) or identity.current == held.current:
            return self
        # Revoked keys are absent from ``held``.
        given = {(key.hub_pk, key.valid_from) for key in identity.hub_keys}
        if not given.issuperset((key.hub_pk, key.valid_from) for key in held.hub_keys):
            raise Untrusted(f"{identity.described()}, is of another chain than the one pinned")
        hubs = {**self.hubs, **_without_revoked({identity.hub_id: identity}, self.revoked)}
        return replace(self, hubs=hubs)


def hub_line(hub: HubIdentity) -> str:
    return f"hub {hub.hub_id.hex()} with {len(hub.hub_keys)} keys"


def exporter_line(name: str, public: bytes) -> str:
    return f"exporter {name} {public.hex()}"


def revoked_line(what: bytes, why: str) -> str:
    return f"revoked {what.hex()}: {why}"


def pin_hub(directory: Path, identity: HubIdentity, signature: bytes) -> bool:
    """Add a hub, or its identity with newer keys; return whether anything changed.

    Its chain of keys is verified first. An identity that does not continue the pinned identity is
    Untrusted: it is older, or of another chain.
    """
    identity.verify(signature)
    _verify_not_revoked(directory, identity.hub_id)
    stem = directory / f"hub-{identity.hub_id.hex()}"
    path = stem.with_suffix(".cbor")
    if path.exists():
        pinned = _read_hub(path, identity.hub_id)
        _verify_follows(pinned, identity)
        if pinned == identity:
            return False
    # The signature is written first: an identity without its signature would be refused.
    durable.write(stem.with_suffix(".sig"), signature)
    durable.write(path, identity.encode())
    return True


def pin_exporter(directory: Path, name: str, public: bytes) -> bool:
    """Add an exporter; return whether it is new. The key of a name never changes."""
    path = directory / f"exporter-{name}.pub"
    if not _EXPORTER.fullmatch(path.name) or len(public) != _KEY_BYTES:
        raise Malformed(
            f"exporter {name!r}: expected a name of a-z, 0-9, . and -, and a public key"
        )
    _verify_not_revoked(directory, public)
    if path.exists():
        if _read_public(path) == public:
            return False
        raise Untrusted(
            f"exporter {name} is pinned with another key; if it took a new one, pin that under a "
            "name of its own, and revoke the old key once nothing more comes from it"
        )
    durable.write(path, public.hex().encode() + b"\n")
    return True


def revoke(directory: Path, what: bytes, reason: str) -> None:
    """Revoke a hub_id, a hub's key or an exporter's key, with everything it ever signed."""
    if len(what) != _KEY_BYTES:
        raise Malformed(
            f"expected a hub_id or a public key of {_KEY_BYTES} bytes, got {len(what)} bytes"
        )
    durable.write(directory / f"revoked-{what.hex()}.txt", reason.encode())


def signature_of(directory: Path, hub_id: bytes) -> bytes:
    """The signature pinned with a hub's identity."""
    return read_file(directory / f"hub-{hub_id.hex()}.sig")


def _without_revoked(
    hubs: Mapping[bytes, HubIdentity], revoked: Mapping[bytes, str]
) -> dict[bytes, HubIdentity]:
    """Hubs that are not revoked, with their keys that are not revoked."""
    left = {}
    for hub_id, hub in hubs.items():
        keys = tuple(key for key in hub.hub_keys if key.hub_pk not in revoked)
        if keys and hub_id not in revoked:
            left[hub_id] = replace(hub, hub_keys=keys) if keys != hub.hub_keys else hub
    return left


def _verify_follows(pinned: HubIdentity, identity: HubIdentity) -> None:
    """Refuse an identity that does not extend the pinned keys: it is older, or of another chain."""
    held = [(key.hub_pk, key.valid_from) for key in pinned.hub_keys]
    given = [(key.hub_pk, key.valid_from) for key in identity.hub_keys]
    ends = zip(pinned.hub_keys, identity.hub_keys, strict=False)
    if given[: len(held)] != held or any(
        old.valid_until not in (None, new.valid_until) for old, new in ends
    ):
        raise Untrusted(
            f"hub {identity.hub_id.hex()} is pinned with {len(held)} keys, of which this identity "
            f"with {len(given)} lacks some: it is older, or of another chain; take the newest one "
            "from the hub itself"
        )


def _verify_not_revoked(directory: Path, what: bytes) -> None:
    if (directory / f"revoked-{what.hex()}.txt").exists():
        raise Untrusted(f"{what.hex()} is revoked in {directory}; it is not pinned again")


def _read_hub(path: Path, hub_id: bytes) -> HubIdentity:
    identity = HubIdentity.decode(read_file(path))
    identity.verify(read_file(path.with_suffix(".sig")))
    if identity.hub_id != hub_id:
        raise Untrusted(
            f"{path.name}: expected hub {hub_id.hex()}, got {identity.hub_id.hex()}; pin it again"
        )
    return identity


def _read_public(path: Path) -> bytes:
    text = read_file(path).decode("ascii", "replace")
    if not _PUBLIC.fullmatch(text):
        raise Malformed(f"{path.name}: expected a public key of 64 hex digits")
    return bytes.fromhex(text.strip())


def read_file(path: Path) -> bytes:
    """The content of a file of a trust directory, of bounded size."""
    with path.open("rb") as file:
        raw = file.read(_MAX_BYTES + 1)
    if len(raw) > _MAX_BYTES:
        raise Malformed(f"{path.name}: expected at most {_MAX_BYTES} bytes, got more")
    return raw


class TrustChange(NamedTuple):
    """A line of changes.txt; ``who`` and ``what`` are printable and have no line breaks."""

    at: int
    who: str
    what: str


def enter(directory: Path, change: TrustChange) -> None:
    path = directory / FILE
    before = path.read_bytes() if path.exists() else b""
    line = f"{datetime.fromtimestamp(change.at, UTC):{_TIME}} {change.who}: {change.what}\n"
    durable.write(path, before + line.encode())


def entered(directory: Path) -> list[TrustChange]:
    """Every entered change in order; lines of another form are skipped."""
    path = directory / FILE
    text = read_file(path).decode(errors="replace") if path.exists() else ""
    return [change for line in text.splitlines() if (change := _change(line)) is not None]


def _change(line: str) -> TrustChange | None:
    match = _LINE.fullmatch(line)
    if match is None:
        return None
    try:
        at = datetime.strptime(match[1], _TIME).replace(tzinfo=UTC)
    except ValueError:
        return None
    return TrustChange(int(at.timestamp()), match[2], match[3])
