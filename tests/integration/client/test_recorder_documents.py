"""A client believes a recorder checkpoint of its hub that follows the last one, and no other."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from hashlib import sha256
from types import SimpleNamespace
from typing import Any

import pytest

from veen import hub_identity
from veen.client.checkpoints import (
    create_recorder_checkpoint,
    latest_recorder_checkpoint,
    recorder_checkpoints_since,
    verify_recorder_checkpoint,
)
from veen.client.credentials import Bearer
from veen.client.transport import HubRefused
from veen.crypto import SigningKey
from veen.errors import Code, Untrusted
from veen.hub_identity import followed_identity
from veen.label import stream_id
from veen.recorder_checkpoint import EMPTY_ROOT, RecorderCheckpoint, StreamEnd, log_root
from veen.wire import api as tooling

HUB = SigningKey(sha256(b"hub").digest())
NEXT = SigningKey(sha256(b"next").digest())
IDENTITY = hub_identity.new_identity(HUB.public, 1, "none")
PROFILE = bytes(32)


def a_document(created_at: int, *streams: str, key: SigningKey = HUB) -> RecorderCheckpoint:
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
        later = [document for document in self.documents if document.created_at > after]
        full = len(later) > self.page
        result = tuple(later[: self.page])
        following = self.next_after or (result[-1].created_at if full else None)
        return tooling.RecorderCheckpointsResponse(checkpoints=result, next_after=following)


def session(api: AnyApi) -> Any:
    return SimpleNamespace(
        api=api,
        hub=IDENTITY,
        ask_identity=lambda: followed_identity(IDENTITY, api.status().identity()),
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
        latest_recorder_checkpoint(at, FIRST)
    with pytest.raises(Untrusted):
        create_recorder_checkpoint(at, PROFILE, FIRST)
    with pytest.raises(Untrusted):
        verify_recorder_checkpoint(at, bad, FIRST)


def test_refuses_a_document_for_another_profile() -> None:
    with pytest.raises(Untrusted, match="another profile"):
        create_recorder_checkpoint(session(AnyApi(FIRST)), b"p" * 32, None)


def test_refuses_a_hub_that_has_lost_them_all() -> None:
    assert latest_recorder_checkpoint(session(AnyApi()), None) is None
    with pytest.raises(Untrusted, match="restored from a backup"):
        latest_recorder_checkpoint(session(AnyApi()), FIRST)


def test_refuses_pages_that_do_not_go_on() -> None:
    api = AnyApi(FIRST, SECOND)
    for wrong in (5, 10, 12):
        api.next_after = wrong
        with pytest.raises(Untrusted):
            list(recorder_checkpoints_since(session(api), None))
    api = AnyApi(FIRST, page=0)
    api.next_after = 10
    with pytest.raises(Untrusted):
        list(recorder_checkpoints_since(session(api), FIRST))


def test_reads_all_since_the_last_over_pages() -> None:
    at = session(AnyApi(FIRST, SECOND, THIRD, FOURTH))
    assert list(recorder_checkpoints_since(at, None)) == [FIRST, SECOND, THIRD, FOURTH]
    assert list(recorder_checkpoints_since(at, SECOND)) == [THIRD, FOURTH]
    assert list(recorder_checkpoints_since(at, FOURTH)) == []


def test_takes_a_key_that_follows_on() -> None:
    api = AnyApi(a_document(40, "record/a", key=NEXT))
    api.identity = IDENTITY.rotated(HUB, NEXT.public, 35, 0)
    assert latest_recorder_checkpoint(session(api), FIRST) == api.documents[0]


@pytest.fixture
def managed(make_client_hub: Callable[..., Any]) -> Any:
    streams = '[[streams]]\nname = "record/a"\n'
    admin = (
        '[[principals]]\nname = "admin"\nrole = "recorder_admin"\nread = ["*"]\n'
        f'token_sha256 = "{sha256(b"admin").hexdigest()}"\n'
    )
    return make_client_hub(
        f'admission = "open"\nreads = "open"\n{streams}{admin}', name="managed"
    ).start()


def test_a_running_hub_answers_the_calls(managed: Any, open_client: Callable[..., Any]) -> None:
    client = open_client(managed.url, credentials=Bearer("admin"))
    at = client.meet()
    assert latest_recorder_checkpoint(at, None) is None
    first = create_recorder_checkpoint(at, PROFILE, None)
    assert create_recorder_checkpoint(at, PROFILE, first) == first
    assert latest_recorder_checkpoint(at, first) == first
    assert list(recorder_checkpoints_since(at, None)) == [first]
