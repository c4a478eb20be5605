"""Signed hub identities in files, and a store of the newest identity of each hub (spec 8.4).

An identity is ``NAME.cbor`` with its signature in ``NAME.sig``: ``hub-identity.cbor`` in a data
directory, ``hub-<hub_id>.cbor`` in a trust directory. A newer identity is never replaced by an
older one.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final, NamedTuple

from veen.errors import Malformed, Untrusted, VeenError
from veen.hub_identity import HubIdentity, newest_identity
from veen.log import layout
from veen.system import durable

_MAX_BYTES: Final = 1 << 20


class IdentityMissing(VeenError, FileNotFoundError):
    """A file of a hub identity does not exist."""


class SignedIdentity(NamedTuple):
    """An identity with the signature of its current key."""

    identity: HubIdentity
    signature: bytes


def read_signed(path: Path) -> SignedIdentity:
    """The verified identity in a file or in a data directory."""
    file = path / layout.IDENTITY if path.is_dir() else path
    raw, signature = read_small(file), read_small(file.with_suffix(".sig"))
    try:
        identity = HubIdentity.decode(raw)
        identity.verify(signature)
    except Malformed as error:
        raise Malformed(f"{file} is no signed identity of a hub: {error}") from error
    except Untrusted as error:
        raise Untrusted(f"{file} is no signed identity of a hub: {error}") from error
    return SignedIdentity(identity, signature)


def read_small(path: Path) -> bytes:
    """The content of a file, up to a size limit."""
    try:
        with path.open("rb") as file:
            raw = file.read(_MAX_BYTES + 1)
    except FileNotFoundError:
        raise IdentityMissing(
            f"{path} is missing: a hub identity is {layout.IDENTITY} with {layout.IDENTITY_SIG} "
            "beside it; veen hub key --out writes both, and the hub's data directory has them"
        ) from None
    if len(raw) > _MAX_BYTES:
        raise Malformed(f"{path} is longer than {_MAX_BYTES} bytes")
    return raw


def known(directory: Path, hub_id: bytes) -> HubIdentity | None:
    """The newest identity of a hub that is stored in a directory, or None."""
    path = _path(directory, hub_id)
    if not path.exists():
        return None
    identity = read_signed(path).identity
    if identity.hub_id != hub_id:
        raise Untrusted(
            f"{path}: expected the identity of hub {hub_id.hex()}, got that of "
            f"{identity.hub_id.hex()}; copy it again from the hub's data directory"
        )
    return identity


def remember(directory: Path, offered: SignedIdentity) -> bool:
    """Store an identity that extends the stored one; whether anything changed.

    An older one changes nothing. An identity on another chain of keys is Untrusted.
    """
    identity, signature = offered
    identity.verify(signature)
    before = known(directory, identity.hub_id)
    if before is not None and newest_identity(before, identity) == before:
        return False
    durable.make_directory(directory)
    path = _path(directory, identity.hub_id)
    # The signature first: an identity without its signature is refused.
    durable.write(path.with_suffix(".sig"), signature)
    durable.write(path, identity.encode())
    return True


def newest_known(hub_id: bytes, given: Path | None, directory: Path | None) -> HubIdentity | None:
    """The newest identity of a hub that is given or stored, or None.

    A given identity is stored, too, if there is a directory.
    """
    if given is None:
        return None if directory is None else known(directory, hub_id)
    offered = read_signed(given)
    if offered.identity.hub_id != hub_id:
        raise Untrusted(
            f"--hub-identity: {given} is of hub {offered.identity.hub_id.hex()}, "
            f"expected {hub_id.hex()}; compare both with what veen hub key shows at the hub"
        )
    if directory is None:
        return offered.identity
    remember(directory, offered)
    return known(directory, hub_id)


def _path(directory: Path, hub_id: bytes) -> Path:
    return directory / f"hub-{hub_id.hex()}.cbor"
