"""Whom a command is about: a card, the directory of a client, or a bare key."""

from __future__ import annotations

import re
from pathlib import Path

from cli.options import surroundings
from veen.errors import Malformed, Untrusted
from veen.keystore.card import IdentityCard
from veen.keystore.directory import ClientDir

_KEY = re.compile(r"[0-9a-fA-F]{64}")


def client_id_of(named: str) -> bytes:
    """The client_id on a card, of a directory, or as it stands in hex."""
    return bytes.fromhex(named) if _KEY.fullmatch(named) else _card(named).client_id


def recipient_of(named: str) -> bytes:
    """The key to seal to, of a card that has not expired."""
    return _card(named).recipient(surroundings().clock())


def _card(named: str) -> IdentityCard:
    path = Path(named)
    file = ClientDir(path).card if path.is_dir() else path
    try:
        card = IdentityCard.decode(file.read_bytes())
        card.verify()
    except (Malformed, Untrusted) as error:
        raise type(error)(f"{file} is no sound identity card: {error}") from error
    return card
