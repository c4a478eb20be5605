"""Builders of the keystore tests: chance from a seed, a cost of nothing, a client directory."""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from veen.keystore.directory import ClientDir

NOW = 1_700_000_000
PASSPHRASE = b"correct horse battery staple"

Create = Callable[..., "ClientDir"]


@pytest.fixture
def seeded_random() -> Callable[[int], bytes]:
    return random.Random(7).randbytes


@pytest.fixture
def create_client_dir(tmp_path: Path, seeded_random: Callable[[int], bytes]) -> Create:
    """A client directory with an identity; a test names only what it changes."""
    from veen.keystore.directory import ClientDir
    from veen.keystore.sealed import LEAST

    def _create(name: str = "client", **changes: object) -> ClientDir:
        client = ClientDir(tmp_path / name)
        arguments = {"now": NOW, "random": seeded_random, "passphrase": PASSPHRASE, "cost": LEAST}
        client.create(**{**arguments, **changes})  # type: ignore[arg-type]
        return client

    return _create


@pytest.fixture
def permissive_umask() -> Iterator[None]:
    before = os.umask(0)
    yield
    os.umask(before)
