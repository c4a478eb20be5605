"""Forging what a data directory holds, as whoever has its keys could."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from support.audit.audit_files import forged
from support.audit.audit_history import Framed
from support.hub.driven_hub import the
from veen.crypto import SigningKey


@pytest.fixture
def forge() -> Callable[[Path, Callable[[list[Framed]], None]], None]:
    """Rewrite a chunk with its entries edited, each framed as if it were right."""

    def rewrite(path: Path, edit: Callable[[list[Framed]], None]) -> None:
        path.write_bytes(forged(path.read_bytes(), edit))

    return rewrite


@pytest.fixture
def forged_hub_key(hub_copy: Path) -> SigningKey:
    return SigningKey(the(hub_copy, "keys/*.key").read_bytes())
