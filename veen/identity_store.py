"""The newest identity of each hub that was seen, one file each, never replaced by an older one.

The files are those of a trust directory: ``hub-<hub_id>.cbor`` with its signature in ``.sig``.
"""

from __future__ import annotations

from pathlib import Path

from veen import durable
from veen.client import trust
from veen.errors import Untrusted
from veen.hub_identity import HubIdentity
from veen.identity_file import SignedIdentity, read_signed


def known(directory: Path, hub_id: bytes) -> HubIdentity | None:
    """The newest identity of a hub that is remembered in a directory; None where none is."""
    path = _path(directory, hub_id)
    if not path.exists():
        return None
    found = read_signed(path).identity
    if found.hub_id != hub_id:
        raise Untrusted(
            f"{path}: expected the identity of hub {hub_id.hex()}, got that of "
            f"{found.hub_id.hex()}; copy it again from the hub's data directory"
        )
    return found


def remember(directory: Path, offered: SignedIdentity) -> bool:
    """Keep an identity that extends the one remembered; whether anything changed.

    An older one changes nothing. One that neither extends it nor is extended by it is Untrusted.
    """
    identity, signature = offered
    identity.verify(signature)
    before = known(directory, identity.hub_id)
    if before is not None and trust.newest(before, identity) == before:
        return False
    durable.make_directory(directory)
    path = _path(directory, identity.hub_id)
    # The signature first: an identity without its signature is refused, not half believed.
    durable.write(path.with_suffix(".sig"), signature)
    durable.write(path, identity.encode())
    return True


def newest_known(hub_id: bytes, given: Path | None, directory: Path | None) -> HubIdentity | None:
    """The newest identity of a hub that is given or remembered; None where neither is.

    One that is given is remembered too, where there is a directory for it.
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
