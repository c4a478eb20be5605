"""identity_card.pub on disk: derived from the keystore, and made again when it is behind."""

from __future__ import annotations

from pathlib import Path

from veen import durable
from veen.errors import Malformed, Untrusted
from veen.keystore import private_file
from veen.keystore.card import IdentityCard
from veen.keystore.identity import Identity


def read(path: Path) -> IdentityCard:
    """The card of a directory, verified; others may read it, but not write it."""
    raw = private_file.read(path, private_file.WRITING)
    try:
        card = IdentityCard.decode(raw)
        card.verify()
    except (Malformed, Untrusted) as error:
        raise Untrusted(
            f"{path}: {error}. Delete it, and the next command that opens the keystore "
            "makes it again"
        ) from error
    return card


def mend(path: Path, identity: Identity) -> None:
    """Put the card of ``identity`` in place of none, or of one from before a rotation."""
    try:
        found = read(path)
    except FileNotFoundError:
        found = None
    if found == identity.card:
        return
    if found is not None:
        _refuse_unless_outdated(path, found, identity)
    durable.write(path, identity.card.encode())


def _refuse_unless_outdated(path: Path, found: IdentityCard, identity: Identity) -> None:
    if found.id_sign != identity.card.id_sign:
        raise Untrusted(f"{path} is the card of somebody else: delete it, and it is made again")
    if found.client_id not in {one.client_id for one in identity.retired_client_ids}:
        raise Untrusted(
            f"{path} names client_id {found.client_id.hex()}, which the keystore beside it does "
            "not know: that is an old copy. Put the newest one back; to go on with the old copy "
            "all the same, delete the card and run veen id rotate"
        )
