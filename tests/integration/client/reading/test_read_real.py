"""Reading, resync and the portable set against a hub as an operator runs it."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from support.client import reading_support
from support.hub.hub_process import HubProcess, veen
from veen.client import portable
from veen.client.log_head import LabelLogRef
from veen.client.reader import follow, open_pair, read
from veen.client.receipts import verify_with_hub
from veen.client.resync import Was, resync, verify_state
from veen.client.session import Session
from veen.hub_identity import HubIdentity
from veen.keystore.directory import ClientDir
from veen.label import DEFAULT_PROFILE

NAME = "record/real"
SIZE = 700

MANY_CHUNKS = """
admission = "open"
reads = "open"

[limits]
max_checkpoint_interval = 64
"""


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A hub whose chunks are small, so that a log has many."""
    root = tmp_path_factory.mktemp("hub")
    (root / "hub.toml").write_text(MANY_CHUNKS)
    process = HubProcess(root, "--config", root / "hub.toml")
    yield process.start()
    process.destroy()


@pytest.fixture(scope="module")
def log(hub: Any, tmp_path_factory: pytest.TempPathFactory) -> list[bytes]:
    """700 messages of two writers, some of them sealed to the reader; the receipts they got."""
    session = reading_support.a_session(hub.url, tmp_path_factory.mktemp("writer"))
    label = session.labels(NAME, DEFAULT_PROFILE).at(0)
    alice, bob = reading_support.Writer(b"alice"), reading_support.Writer(b"bob")
    to = reading_support.an_identity().card.prekeys[0].prekey
    receipts: list[bytes] = []
    for start in range(0, SIZE, 100):
        msgs = [
            (alice, bob)[seq % 2].msg(label, body=b"event %d" % seq, recipient=to).encode()
            for seq in range(start, start + 100)
        ]
        receipts += [item for item in session.api.submit_batch(msgs) if isinstance(item, bytes)]
    session.api.transport.close()
    assert len(receipts) == SIZE
    return receipts


@pytest.fixture
def session(hub: Any, log: list[bytes], make_session: Callable[..., Session]) -> Session:
    return make_session(hub.url)


def labels(session: Session) -> Any:
    return session.labels(NAME, DEFAULT_PROFILE)


def test_reads_and_opens_every_entry(session: Session, log: list[bytes]) -> None:
    result = list(read(session, labels(session), NAME, page_items=150, with_proof=True))
    assert [item.receipt.encode() for item in result] == log
    bodies = [open_pair(session, item, DEFAULT_PROFILE).body for item in result[::70]]
    assert bodies == [b"event %d" % seq for seq in range(0, SIZE, 70)]


@pytest.mark.parametrize("seed", range(3))
def test_any_range_equals_the_log(seed: int, session: Session, log: list[bytes]) -> None:
    chance = random.Random(seed)
    for _ in range(8):
        first = chance.randrange(1, SIZE + 20)
        last = chance.choice([None, chance.randrange(first, SIZE + 30)])
        result = read(session, labels(session), NAME, from_seq=first, to_seq=last, page_items=99)
        assert [item.receipt.encode() for item in result] == log[first - 1 : last]


def test_resync_checks_every_checkpoint(session: Session) -> None:
    done = resync(session, labels(session), NAME)
    assert (done.was, done.to_size, done.replayed) == (Was.LOST, SIZE, SIZE)
    assert done.checkpoints_checked == SIZE // 64
    assert resync(session, labels(session), NAME).was is Was.CURRENT
    verdict = verify_state(session, labels(session), NAME)
    assert (verdict.consistent, verdict.local_seq, verdict.hub_seq) == (True, SIZE, SIZE)


def test_a_receipt_is_proved_against_the_head(session: Session) -> None:
    (pair,) = read(session, labels(session), NAME, from_seq=123, to_seq=123)
    where = LabelLogRef(labels(session), NAME, 0)
    assert verify_with_hub(session, pair.receipt, pair.msg, where).head_seq == SIZE


def test_the_portable_set_survives_the_way(hub: Any, log: list[bytes], tmp_path: Path) -> None:
    home = ClientDir(tmp_path / "home")
    home.create(now=1_000, random=reading_support.Randomness(b"home"), passphrase=None)
    session = reading_support.a_session(hub.url, home.root, identity=home.open(None))
    done = portable.export(session, [NAME], tmp_path / "set")
    session.api.transport.close()
    assert (done.pairs, done.checkpoints) == (SIZE, SIZE // 64)
    assert portable.import_(tmp_path / "set", tmp_path / "new").pairs == SIZE


def test_follows_a_real_hub(hub: Any, make_session: Callable[..., Session], tmp_path: Path) -> None:
    name = "record/followed"
    writer, alice = make_session(hub.url, "writer"), reading_support.Writer(b"alice")
    label = writer.labels(name, DEFAULT_PROFILE).at(0)

    class Writes(reading_support.Time):
        """Something is written whenever the reader waits."""

        def sleep(self, seconds: float) -> None:
            super().sleep(seconds)
            writer.api.submit(alice.msg(label).encode())

    reader = make_session(hub.url, "reader", time=Writes(1_900_000_000))
    pairs = follow(reader, reader.labels(name, DEFAULT_PROFILE), name, from_seq=1)
    assert [pair.receipt.stream_seq for pair in islice(pairs, 5)] == [1, 2, 3, 4, 5]


def test_a_hub_that_rotates_its_key_is_followed(
    hub: Any, make_session: Callable[..., Session]
) -> None:
    """The last test of this file: the hub is stopped for it."""
    session = make_session(hub.url, "before")
    list(read(session, labels(session), NAME, to_seq=10))
    hub.stop()
    done = veen("hub", "rotate-key", "--data-dir", hub.data, "--overlap-sec", 0)
    assert done.returncode == 0, done.stderr
    hub.start()
    writer = make_session(hub.url, "writer")
    carol = reading_support.Writer(b"carol")
    writer.api.submit(carol.msg(labels(writer).at(0)).encode())
    assert len(list(read(session, labels(session), NAME, from_seq=11))) == SIZE - 9
    assert isinstance(session.hub, HubIdentity)
    assert len(session.hub.hub_keys) == 2
