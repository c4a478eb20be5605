"""When a client_id or a prekey has served its time, and what the owner is told."""

from __future__ import annotations

from typing import Any

import pytest

from cli.identity import SentUsage, advice
from veen.crypto import SigningKey, hpke_public_key
from veen.keystore.card import IdentityCard, SignedPrekey, issue

NOW = 1_700_000_000
DAY = 86_400
OWNER, CLIENT, OLD = (SigningKey(bytes([n]) * 32) for n in (1, 2, 3))


def a_card(expires_at: int = NOW + 365 * DAY) -> IdentityCard:
    prekey = SignedPrekey(prekey=hpke_public_key(b"\x05" * 32), expires_at=expires_at)
    id_dh = hpke_public_key(b"\x04" * 32)
    return issue(OWNER, CLIENT, id_dh=id_dh, prekeys=[prekey.signed(OWNER)], created_at=NOW)


def sent(**changes: Any) -> SentUsage:
    parts = {
        "label": b"l" * 32,
        "stream": "core/main",
        "epoch": 0,
        "client_id": CLIENT.public,
        "messages": 1,
    }
    return SentUsage(**{**parts, **changes})


@pytest.mark.parametrize(
    "usage",
    [
        [],
        [sent(messages=255)],
        [sent(messages=10_000, client_id=OLD.public)],
        [sent(epoch=7, messages=10_000)],
        [sent(epoch=7), sent(epoch=8, client_id=OLD.public)],
        [sent(epoch=7), sent(epoch=8, stream="other")],
        [sent(epoch=7), sent(epoch=8, messages=0)],
    ],
)
def test_a_client_id_within_its_bounds_stays(usage: list[SentUsage]) -> None:
    assert advice(a_card(), usage, NOW) == ()


@pytest.mark.parametrize(
    ("usage", "message"),
    [
        ([sent(messages=256)], "256 messages on core/main, at most 256"),
        ([sent(epoch=7), sent(epoch=8)], "used in 2 epochs of core/main, one is recommended"),
    ],
)
def test_a_client_id_beyond_its_bounds_is_to_be_rotated(
    usage: list[SentUsage], message: str
) -> None:
    (advised,) = advice(a_card(), usage, NOW)
    assert message in advised
    assert advised.endswith("run veen id rotate")


@pytest.mark.parametrize(
    ("left", "message"),
    [
        (30 * DAY, None),
        (30 * DAY - 1, "expires in 29 days"),
        (0, "expires in 0 days"),
        (-1, "every prekey has expired"),
    ],
)
def test_a_prekey_near_its_end_is_reported(left: int, message: str | None) -> None:
    result = advice(a_card(NOW + left), [], NOW)
    assert len(result) == (message is not None)
    assert message is None or message in result[0]
