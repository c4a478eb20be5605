"""Recorder checkpoints: signed by their hub over all they say, and never going back."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from veen.checkpoint import Checkpoint
from veen.crypto import SigningKey
from veen.errors import Malformed, Untrusted
from veen.hub_identity import HubIdentity, new_identity
from veen.label import derive_label, hub_id, routing_key, stream_id
from veen.recorder_checkpoint import EMPTY_ROOT, RecorderCheckpoint, StreamEnd, log_root

HUB = SigningKey(b"hub key seed".ljust(32, b"."))
OTHER = SigningKey(b"other".ljust(32, b"."))
IDENTITY = new_identity(HUB.public, 1_000, "none")
NOW = 2_000


def root_of(name: str, seq: int) -> bytes:
    return stream_id(f"{name} {seq}")


def a_checkpoint(name: str, upto: int, key: SigningKey = HUB, **changes: Any) -> Checkpoint:
    own = derive_label(routing_key(hub_id(HUB.public)), stream_id(name), 0)
    plain = Checkpoint(
        label_prev=own, label_curr=own, upto_seq=upto, mmr_root=root_of(name, upto), epoch=0
    )
    return replace(plain, **changes).signed(key)


def a_document(
    counts: dict[str, int] | None = None, *, key: SigningKey = HUB, **changes: Any
) -> RecorderCheckpoint:
    """Over streams by name; a test names only what it changes. Signed last of all."""
    given_ = {"record/a": 3, "record/b": 0, "export/x": 7} if counts is None else counts
    rows = sorted((stream_id(name), name, count) for name, count in given_.items())
    ends = tuple(
        StreamEnd(stream_id=sid, last_seq=n, mmr_root=root_of(name, n) if n else EMPTY_ROOT)
        for sid, name, n in rows
    )
    plain = RecorderCheckpoint(
        hub_id=IDENTITY.hub_id,
        hub_public=HUB.public,
        profile_id=b"p" * 32,
        created_at=NOW,
        log_root=log_root(ends),
        ends=ends,
        names=tuple(name for _, name, _ in rows),
        checkpoints=tuple(a_checkpoint(name, n) for _, name, n in rows if n),
    )
    return replace(plain, **changes).signed(key)


def broken() -> Iterator[tuple[str, Callable[[], bytes]]]:
    item = a_document()
    swapped = (item.ends[1], item.ends[0], item.ends[2])
    rooted = tuple(replace(e, mmr_root=b"r" * 32) if not e.last_seq else e for e in item.ends)
    moved = tuple(replace(e, last_seq=e.last_seq + 1) if e.last_seq else e for e in item.ends)

    def changed(**changes: Any) -> Callable[[], bytes]:
        if "ends" in changes:
            changes["log_root"] = log_root(changes["ends"])
        return lambda: a_document(**changes).encode()

    yield "streams out of order", changed(ends=swapped, names=(item.names[1], item.names[0], "z"))
    yield "streams doubled", changed(ends=(item.ends[0], item.ends[0], item.ends[2]))
    yield "names of others", changed(names=("record/z", *item.names[1:]))
    yield "names too few", changed(names=item.names[:2])
    yield "log_root of others", changed(log_root=b"l" * 32)
    yield "checkpoints missing", changed(checkpoints=item.checkpoints[:1])
    yield "checkpoints in another order", changed(checkpoints=item.checkpoints[::-1])
    yield "checkpoints elsewhere", changed(ends=moved)
    yield "an empty stream with a root", changed(ends=rooted)


@pytest.mark.parametrize(("why", "encode"), list(broken()), ids=[name for name, _ in broken()])
def test_what_contradicts_itself_is_not_a_document(why: str, encode: Callable[[], bytes]) -> None:
    with pytest.raises(Malformed):
        encode()


def test_a_document_reads_back_and_verifies() -> None:
    for counts in ({}, {"record/a": 0}, None):
        checkpoint = RecorderCheckpoint.decode(a_document(counts).encode())
        assert checkpoint == a_document(counts)
        checkpoint.verify(IDENTITY)
        checkpoint.verify_follows(checkpoint)
    assert checkpoint.end("record/a") == StreamEnd(
        stream_id=stream_id("record/a"), last_seq=3, mmr_root=root_of("record/a", 3)
    )
    assert checkpoint.end("record/none") is None


def test_every_change_is_noticed(flips: Callable[[bytes], Iterator[bytes]]) -> None:
    raw = a_document({"record/a": 3}).encode()
    for at, changed in enumerate(flips(raw)):
        if at % 5:
            continue
        with pytest.raises((Malformed, Untrusted)):
            RecorderCheckpoint.decode(changed).verify(IDENTITY)


def expired() -> HubIdentity:
    return IDENTITY.rotated(HUB, OTHER.public, NOW - 500, 100)


@pytest.mark.parametrize(
    ("document", "hub"),
    [
        (a_document(key=OTHER), IDENTITY),
        (a_document(key=OTHER, hub_public=OTHER.public), IDENTITY),
        (a_document(hub_id=b"h" * 32), IDENTITY),
        (a_document(created_at=999), IDENTITY),
        (a_document(), expired()),
        (a_document(), new_identity(OTHER.public, 1_000, "none")),
    ],
    ids=["another's signature", "another's key", "another hub's name", "before the key",
         "after the key", "another hub"],
)  # fmt: skip
def test_what_the_hub_did_not_sign_is_untrusted(
    document: RecorderCheckpoint, hub: HubIdentity
) -> None:
    with pytest.raises(Untrusted):
        document.verify(hub)


@pytest.mark.parametrize(
    "checkpoint",
    [
        a_checkpoint("record/a", 3, OTHER),
        a_checkpoint("record/b", 3, mmr_root=root_of("record/a", 3)),
        a_checkpoint("record/a", 3, epoch=1),
    ],
    ids=["by another key", "of another stream", "of another epoch"],
)
def test_a_checkpoint_inside_must_be_the_hub_s_and_the_stream_s(checkpoint: Checkpoint) -> None:
    result = a_document({"record/a": 3}, checkpoints=(checkpoint,))
    with pytest.raises(Untrusted, match="record/a"):
        result.verify(IDENTITY)


@pytest.mark.parametrize(
    "later",
    [
        a_document(created_at=NOW - 1),
        a_document({"record/a": 2, "record/b": 0, "export/x": 7}),
        a_document({"record/a": 3, "export/x": 7}),
        a_document({"record/a": 0, "record/b": 0, "export/x": 7}),
    ],
    ids=["earlier", "a stream shorter", "a stream gone", "a stream emptied"],
)
def test_going_back_is_untrusted(later: RecorderCheckpoint) -> None:
    with pytest.raises(Untrusted):
        later.verify_follows(a_document())


def test_another_root_at_the_same_size_is_untrusted() -> None:
    fork = a_checkpoint("record/a", 3, mmr_root=b"f" * 32)
    ends = (StreamEnd(stream_id=stream_id("record/a"), last_seq=3, mmr_root=b"f" * 32),)
    later = a_document({"record/a": 3}, ends=ends, log_root=log_root(ends), checkpoints=(fork,))
    later.verify(IDENTITY)
    with pytest.raises(Untrusted, match="two different roots"):
        later.verify_follows(a_document({"record/a": 3}))


COUNTS = st.dictionaries(st.sampled_from([f"record/{n}" for n in range(6)]), st.integers(0, 9))


@given(COUNTS, COUNTS)
def test_one_follows_another_when_no_stream_goes_back(
    before: dict[str, int], after: dict[str, int]
) -> None:
    due = all(name in after and after[name] >= count for name, count in before.items())
    earlier, later = a_document(before), a_document(after, created_at=NOW + 1)
    try:
        later.verify_follows(earlier)
    except Untrusted:
        assert not due
    else:
        assert due


@given(COUNTS, COUNTS)
def test_the_log_root_tells_every_list_of_ends_apart(
    left: dict[str, int], right: dict[str, int]
) -> None:
    same = a_document(left).log_root == a_document(right).log_root
    assert same == (left == right)
