"""A hub identity in a file: ``NAME.cbor`` with its signature in ``NAME.sig`` beside it (spec 8.4).

A data directory has it as ``hub-identity.cbor``, a trust directory as ``hub-<hub_id>.cbor``.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final, NamedTuple

from veen import layout
from veen.errors import Malformed, Untrusted, VeenError
from veen.hub_identity import HubIdentity

_MAX_BYTES: Final = 1 << 20


class IdentityMissing(VeenError, FileNotFoundError):
    """A file of a hub identity that is not there."""


class SignedIdentity(NamedTuple):
    """An identity with the signature of its current key, as anyone may check them again."""

    identity: HubIdentity
    signature: bytes


def read_signed(path: Path) -> SignedIdentity:
    """The verified identity in a file; of a data directory, the one it holds."""
    file = path / layout.IDENTITY if path.is_dir() else path
    raw, signature = read_small(file), read_small(file.with_suffix(".sig"))
    try:
        found = HubIdentity.decode(raw)
        found.verify(signature)
    except Malformed as error:
        raise Malformed(f"{file} is no signed identity of a hub: {error}") from error
    except Untrusted as error:
        raise Untrusted(f"{file} is no signed identity of a hub: {error}") from error
    return SignedIdentity(found, signature)


def read_small(path: Path) -> bytes:
    """A file of which none is large."""
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
