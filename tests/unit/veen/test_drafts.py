"""QueueCipher: queued messages encrypted at rest, each bound to its event id, cached or not."""

from __future__ import annotations

import os

import pytest

from veen.client.queued import MessageTemplate, QueueCipher, QueuedMessage
from veen.errors import Untrusted
from veen.label import DEFAULT_PROFILE
from veen.payload import PayloadHdr

KEY = bytes(range(32))
FORM = MessageTemplate(
    stream="record/app/orders",
    profile=DEFAULT_PROFILE,
    recipient=bytes(32),
    header=PayloadHdr(schema=bytes(32)),
)


def drafts() -> QueueCipher:
    return QueueCipher(KEY, os.urandom)


def test_what_was_sealed_here_is_what_another_opens() -> None:
    here, draft = drafts(), QueuedMessage(FORM, b"body", (b"attached",))
    sealed = here.seal(7, draft)
    assert here.open(7, sealed) == here.open(7, sealed) == drafts().open(7, sealed) == draft


@pytest.mark.parametrize("changed", ["number", "byte", "end"])
def test_nothing_else_is_opened(changed: str) -> None:
    here = drafts()
    sealed = here.seal(7, QueuedMessage(FORM, b"body"))
    others = {
        "number": (8, sealed),
        "byte": (7, sealed[:-1] + bytes([sealed[-1] ^ 1])),
        "end": (7, sealed[:-1]),
    }
    with pytest.raises(Untrusted):
        here.open(*others[changed])


def test_the_cache_is_bounded_and_forgets() -> None:
    here, body = drafts(), bytes(1 << 20)
    sealed = [here.seal(number, QueuedMessage(FORM, body)) for number in range(20)]
    assert 0 < len(here._cache) < 10
    for number, item in enumerate(sealed):
        assert here.open(number, item).body == body
    here.forget(range(20))
    assert here._cache == {}
    assert [here.open(number, item).body for number, item in enumerate(sealed)] == [body] * 20
