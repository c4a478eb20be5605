"""Readers against hubs: honest ones that run as processes, and one that lies as it is told."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from support.client import lying_hub, reading_support
from support.hub import hub_process
from veen import captoken
from veen.client import portable
from veen.client.session import Session
from veen.crypto import SigningKey
from veen.digest import h
from veen.keystore.directory import ClientDir


@pytest.fixture
def make_lying_hub() -> Iterator[Callable[..., Any]]:
    hubs: list[Any] = []

    def make(*args: Any, **more: Any) -> Any:
        hubs.append(lying_hub.LyingHub(*args, **more))
        return hubs[-1]

    yield make
    for item in hubs:
        item.close()


@pytest.fixture
def dishonest_hub(make_lying_hub: Callable[..., Any]) -> Any:
    return make_lying_hub()


@pytest.fixture
def make_session(tmp_path: Path) -> Iterator[Callable[..., Any]]:
    """Client directories, each with its own connection to a hub."""
    sessions: list[Any] = []

    def make(url: str, name: str = "client", **more: Any) -> Any:
        sessions.append(reading_support.a_session(url, tmp_path / name, **more))
        return sessions[-1]

    yield make
    for item in sessions:
        item.api.transport.close()


@pytest.fixture(scope="module")
def real_hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A hub as an operator runs it, where anyone may write and read."""
    process = hub_process.HubProcess(tmp_path_factory.mktemp("hub"), *hub_process.OPEN)
    yield process.start()
    process.destroy()


PORTABLE_NAMES = ("record/a", "record/b")
PORTABLE_ATTACHMENT = b"a sealed attachment"


@pytest.fixture
def portable_home(tmp_path: Path) -> ClientDir:
    client_dir = ClientDir(tmp_path / "home")
    client_dir.create(now=1_000, random=reading_support.Randomness(b"home"), passphrase=None)
    (client_dir.attachments / h(PORTABLE_ATTACHMENT).hex()).write_bytes(PORTABLE_ATTACHMENT)
    return client_dir


@pytest.fixture
def owner(
    dishonest_hub: Any, portable_home: ClientDir, make_session: Callable[..., Session]
) -> Session:
    """Two streams of ours and another's, with checkpoints and a capability."""
    identity = portable_home.open(None)
    token = captoken.issue(
        SigningKey(h(b"issuer")), subject_pk=identity.client_id, stream_ids=[h(b"s")], ttl=10**6
    )
    dishonest_hub.tokens[token.auth_ref()] = token
    me = reading_support.Writer(b"me", key=identity.client, auth_ref=token.auth_ref())
    for name in PORTABLE_NAMES:
        reading_support.fill(
            dishonest_hub,
            dishonest_hub.log(name),
            11,
            me,
            reading_support.Writer(name.encode()),
            every=4,
        )
    return make_session(dishonest_hub.url, "home", identity=identity)


@pytest.fixture
def out(owner: Session, tmp_path: Path) -> Path:
    portable.export(owner, PORTABLE_NAMES, tmp_path / "set")
    return tmp_path / "set"
