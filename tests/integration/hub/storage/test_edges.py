"""Where a hub could be brought down or into a lie by odd times, odd labels and odd capabilities."""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from hub.admission import Gate, VerifiedMsg
from hub.sequencer.committer import Committer
from hub.storage import identity
from hub.storage.datadir import DataDir
from hub.storage.label_log import Damaged
from hub.storage.log import HubLog
from veen import captoken, label
from veen.captoken import Rate
from veen.crypto import SigningKey
from veen.digest import h
from veen.errors import Failure, Rejected
from veen.label import DEFAULT_PROFILE, Profile
from veen.limits import Limits
from veen.log.entry import StreamRecord
from veen.msg import Msg
from veen.receipt import Receipt

CLOCK = 1_700_000_000
ISSUER, CLIENT = SigningKey(b"i" * 32), SigningKey(b"c" * 32)
SECONDS = StreamRecord(name="chat/seconds", profile=Profile(epoch_sec=1))


@contextmanager
def opened(root: Path, *streams: StreamRecord, seed: bytes = b"s") -> Iterator[Committer]:
    """A committer with open admission that trusts one issuer."""
    datadir = DataDir(root)
    datadir.create()
    keys = identity.load_or_create(datadir, lambda size: seed * size, CLOCK)
    log = HubLog(datadir, keys, Limits(max_epoch_skew_sec=2), streams)
    try:
        yield Committer(log, Gate(False, frozenset({ISSUER.public})))
    finally:
        log.close()


def message(name: bytes, profile: Profile = DEFAULT_PROFILE, seq: int = 1) -> VerifiedMsg:
    ciphertext = bytes(40)
    msg = Msg(
        profile_id=profile.profile_id(), label=name, client_id=CLIENT.public, client_seq=seq,
        prev_ack=0, auth_ref=None, ct_hash=h(ciphertext), ciphertext=ciphertext,
    )  # fmt: skip
    return VerifiedMsg.of(msg.signed(CLIENT))


def test_a_label_of_a_closed_epoch_takes_no_more_however_long_ago(tmp_path: Path) -> None:
    with opened(tmp_path, SECONDS) as committer:
        labels = committer.log.registry.labels_of(SECONDS)
        old = labels.at(CLOCK)
        (first,) = committer.commit([message(old, SECONDS.profile)], CLOCK)
        assert isinstance(first, bytes)
        later = CLOCK + 10_000
        committer.tick(later)
        again, more = committer.commit(
            [message(old, SECONDS.profile), message(old, SECONDS.profile, 2)], later
        )
    assert isinstance(again, Rejected)
    assert (again.failure, again.stream_seq) == (Failure.DUPLICATE, 1)
    assert isinstance(more, Rejected)
    assert more.failure is Failure.EPOCH


def test_a_damaged_log_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    with opened(tmp_path) as committer:
        committer.commit([message(b"l" * 32, seq=seq) for seq in (1, 2, 3)], CLOCK)
        path = next(iter(committer.log.labels())).open_path()
    raw = bytearray(path.read_bytes())
    raw[100] ^= 1
    path.write_bytes(raw)
    with pytest.raises(Damaged, match="receipts up to 3"), opened(tmp_path):
        pass
    assert path.read_bytes() == raw


def test_receipts_verify_when_the_clock_goes_back_after_a_rotation(tmp_path: Path) -> None:
    with opened(tmp_path) as committer:
        committer.commit([message(b"l" * 32)], CLOCK + 50)
    identity.rotate(DataDir(tmp_path), lambda size: b"n" * size, CLOCK + 100, 10)
    with opened(tmp_path) as committer:
        (outcome,) = committer.commit([message(b"l" * 32, seq=2)], CLOCK - 1_000)
        assert isinstance(outcome, bytes)
        committer.log.keys.identity.verify_receipt(Receipt.decode(outcome))


def test_more_labels_than_files_may_be_open(tmp_path: Path) -> None:
    pid = os.fork()
    if pid == 0:
        os.closerange(3, resource.getrlimit(resource.RLIMIT_NOFILE)[0])  # what others left open
        resource.setrlimit(resource.RLIMIT_NOFILE, (200, 200))
        code = 1
        try:
            with opened(tmp_path) as committer:
                for seq in (1, 2):
                    messages = [message(h(b"%d" % n), seq=seq) for n in range(300)]
                    assert all(
                        isinstance(item, bytes) for item in committer.commit(messages, CLOCK)
                    )
            with opened(tmp_path) as committer:
                assert len(list(committer.log.labels())) == 300
            code = 0
        finally:
            os._exit(code)
    assert os.waitpid(pid, 0)[1] == 0


@pytest.mark.parametrize(
    ("streams", "rate"),
    [
        pytest.param(1, Rate(per_sec=1, burst=2**64 - 1), id="a burst nobody can count"),
        pytest.param(600, None, id="more streams than a control record holds"),
    ],
)
def test_a_capability_beyond_the_limits_is_not_taken(
    tmp_path: Path, streams: int, rate: Rate | None
) -> None:
    ids = [h(b"%d" % n) for n in range(streams)]
    token = captoken.issue(ISSUER, subject_pk=CLIENT.public, stream_ids=ids, ttl=60, rate=rate)
    with opened(tmp_path) as committer:
        with pytest.raises(Rejected) as refusal:
            committer.authorize(token, CLOCK)
        assert refusal.value.failure is Failure.CAP_INVALID
        assert list(committer.log.labels()) == []


def test_a_label_gets_the_name_of_a_stream_that_is_registered_later(tmp_path: Path) -> None:
    stream = StreamRecord(name="record/late", profile=DEFAULT_PROFILE)
    with opened(tmp_path) as committer:
        hub_id = committer.log.keys.hub_id
        name = label.derive_label(label.routing_key(hub_id), stream.stream_id(), 0)
        committer.commit([message(name)], CLOCK)
        committer.register(stream, CLOCK)
        row = committer.log.index.label(name)
    assert row is not None
    assert row.stream_id == stream.stream_id()
