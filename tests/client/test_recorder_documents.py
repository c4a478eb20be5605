"""A client believes a recorder checkpoint of its hub that follows the last one, and no other."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from hashlib import sha256
from types import SimpleNamespace
from typing import Any

import pytest

from veen import hub_identity, tooling
from veen.client import recorder_checkpoints, trust
from veen.client.credentials import Bearer
from veen.client.errors import HubRefused
from veen.errors import Code, Untrusted
from veen.recorder_checkpoint import EMPTY_ROOT, RecorderCheckpoint, StreamEnd, log_root
from veen.sign import PrivateKey
from veen.stream import stream_id

HUB = PrivateKey(sha256(b"hub").digest())
NEXT = PrivateKey(sha256(b"next").digest())
IDENTITY = hub_identity.new_identity(HUB.public, 1, "none")
PROFILE = bytes(32)


def a_document(created_at: int, *streams: str, key: PrivateKey = HUB) -> RecorderCheckpoint:
    """Over empty streams, which is enough to go back by leaving one out."""
    names = sorted(streams, key=stream_id)
    ends = tuple(
        StreamEnd(stream_id=stream_id(name), last_seq=0, mmr_root=EMPTY_ROOT) for name in names
    )
    return RecorderCheckpoint(
        hub_id=IDENTITY.hub_id, hub_public=key.public, profile_id=PROFILE, created_at=created_at,
        log_root=log_root(ends), ends=ends, names=tuple(names), checkpoints=(),
    ).signed(key)  # fmt: skip


class AnyApi:
    """A hub that answers what it is told to."""

    def __init__(self, *documents: RecorderCheckpoint, page: int = 2) -> None:
        self.documents = list(documents)
        self.page = page
        self.identity = IDENTITY
        self.next_after: int | None = None

    def status(self) -> Any:
        return SimpleNamespace(identity=lambda: self.identity)

    def recorder_checkpoint(self, _profile_id: bytes, **_: bool) -> RecorderCheckpoint:
        return self.documents[-1]

    def recorder_checkpoint_latest(self) -> RecorderCheckpoint:
        if not self.documents:
            raise HubRefused(Code.NOT_FOUND.value, "none", {}, None)
        return self.documents[-1]

    def recorder_checkpoints(self, after: int) -> Any:
        later = [one for one in self.documents if one.created_at > after]
        full = len(later) > self.page
        found = tuple(later[: self.page])
        following = self.next_after or (found[-1].created_at if full else None)
        return tooling.RecorderCheckpointsResponse(checkpoints=found, next_after=following)


def session(api: AnyApi) -> Any:
    return SimpleNamespace(
        api=api,
        hub=IDENTITY,
        ask_identity=lambda: trust.followed(IDENTITY, api.status().identity()),
    )


FIRST, SECOND, THIRD, FOURTH = (a_document(at, "record/a") for at in (10, 11, 15, 20))
BAD = {
    "another hub's": a_document(30, "record/a", key=NEXT),
    "earlier": a_document(9, "record/a"),
    "without a stream": a_document(30),
    "unsigned": replace(a_document(30, "record/a"), hub_sig=bytes(64)),
}


@pytest.mark.parametrize("bad", BAD.values(), ids=BAD)
def test_refuses_what_is_not_the_hub_s_or_goes_back(bad: RecorderCheckpoint) -> None:
    at = session(AnyApi(bad))
    with pytest.raises(Untrusted):
        recorder_checkpoints.latest(at, FIRST)
    with pytest.raises(Untrusted):
        recorder_checkpoints.create(at, PROFILE, FIRST)
    with pytest.raises(Untrusted):
        recorder_checkpoints.verify(at, bad, FIRST)


def test_refuses_a_document_for_another_profile() -> None:
    with pytest.raises(Untrusted, match="another profile"):
        recorder_checkpoints.create(session(AnyApi(FIRST)), b"p" * 32, None)


def test_refuses_a_hub_that_has_lost_them_all() -> None:
    assert recorder_checkpoints.latest(session(AnyApi()), None) is None
    with pytest.raises(Untrusted, match="put back"):
        recorder_checkpoints.latest(session(AnyApi()), FIRST)


def test_refuses_pages_that_do_not_go_on() -> None:
    api = AnyApi(FIRST, SECOND)
    for wrong in (5, 10, 12):
        api.next_after = wrong
        with pytest.raises(Untrusted):
            list(recorder_checkpoints.since(session(api), None))
    api = AnyApi(FIRST, page=0)
    api.next_after = 10
    with pytest.raises(Untrusted):
        list(recorder_checkpoints.since(session(api), FIRST))


def test_reads_all_since_the_last_over_pages() -> None:
    at = session(AnyApi(FIRST, SECOND, THIRD, FOURTH))
    assert list(recorder_checkpoints.since(at, None)) == [FIRST, SECOND, THIRD, FOURTH]
    assert list(recorder_checkpoints.since(at, SECOND)) == [THIRD, FOURTH]
    assert list(recorder_checkpoints.since(at, FOURTH)) == []


def test_takes_a_key_that_follows_on() -> None:
    api = AnyApi(a_document(40, "record/a", key=NEXT))
    api.identity = IDENTITY.rotated(HUB, NEXT.public, 35, 0)
    assert recorder_checkpoints.latest(session(api), FIRST) == api.documents[0]


@pytest.fixture
def managed(make_hub: Callable[..., Any]) -> Any:
    streams = '[[streams]]\nname = "record/a"\n'
    admin = (
        '[[principals]]\nname = "admin"\nrole = "recorder_admin"\nread = ["*"]\n'
        f'token_sha256 = "{sha256(b"admin").hexdigest()}"\n'
    )
    return make_hub(f'admission = "open"\nreads = "open"\n{streams}{admin}', name="managed").start()


def test_a_running_hub_answers_the_calls(managed: Any, open_client: Callable[..., Any]) -> None:
    client = open_client(managed.url, credentials=Bearer("admin"))
    at = client.meet()
    assert recorder_checkpoints.latest(at, None) is None
    first = recorder_checkpoints.create(at, PROFILE, None)
    assert recorder_checkpoints.create(at, PROFILE, first) == first
    assert recorder_checkpoints.latest(at, first) == first
    assert list(recorder_checkpoints.since(at, None)) == [first]
