"""The identity of the hub beside its checkpoints, so that they can be verified without it."""

from __future__ import annotations

from pathlib import Path

from recorder.checkpoints.home import Home
from veen import durable, label, layout
from veen.client.session import Session
from veen.client.trust import followed
from veen.errors import Malformed, Untrusted
from veen.hub_identity import HubIdentity, new_identity
from veen.recorder_checkpoint import RecorderCheckpoint


def keep(home: Home, session: Session) -> HubIdentity:
    """Put what the hub says of itself beside its checkpoints, for later and for others."""
    status = session.api.status()
    found = followed(session.hub, status.identity())
    with home.held():
        held = _read(home.root)
        if held is not None and _is_signed(*held):
            # The client may have forgotten what is remembered here.
            followed(held[0], found)
        if held != (found, status.identity_sig):
            # A crash between the two leaves a pair that does not verify; the next one mends it.
            durable.write(home.root / layout.IDENTITY, found.encode())
            durable.write(home.root / layout.IDENTITY_SIG, status.identity_sig)
    return found


def _is_signed(identity: HubIdentity, signature: bytes) -> bool:
    try:
        identity.verify(signature)
    except Untrusted:
        return False
    return True


def read(folder: Path) -> HubIdentity | None:
    """The identity in a folder - a data directory, or a home - verified; None without one."""
    pair = _read(folder)
    if pair is None:
        return None
    identity, signature = pair
    try:
        identity.verify(signature)
    except Untrusted as error:
        raise Untrusted(f"{folder / layout.IDENTITY}: {error}") from error
    return identity


def of_document(document: RecorderCheckpoint, given: HubIdentity | None) -> HubIdentity:
    """The identity to verify a document by; its own first key is enough, being its name."""
    if given is not None:
        return given
    if label.hub_id(document.hub_public) != document.hub_id:
        raise Untrusted(
            f"hub {document.hub_id.hex()} signed this with a later key: to know it for the hub's, "
            f"give a folder with its {layout.IDENTITY} and {layout.IDENTITY_SIG} as --identity"
        )
    return new_identity(document.hub_public, 0, "")


def _read(folder: Path) -> tuple[HubIdentity, bytes] | None:
    try:
        raw = (folder / layout.IDENTITY).read_bytes()
        signature = (folder / layout.IDENTITY_SIG).read_bytes()
    except FileNotFoundError:
        return None
    try:
        return HubIdentity.decode(raw), signature
    except Malformed as error:
        raise Malformed(f"{folder / layout.IDENTITY}: {error}") from error
