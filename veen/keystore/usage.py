"""How much a client_id has been used, and when it is time for another (spec 3, KEX0.2)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from veen.keystore.card import IdentityCard
from veen.keystore.prekey import SignedPrekey
from veen.keystore.secrets import DAY_SEC

MAX_MESSAGES: Final = 256
"""On a label without epochs; with epochs, a client_id is to serve for one of them."""
_NOTICE_SEC: Final = 30 * DAY_SEC


@dataclass(frozen=True, slots=True, kw_only=True)
class Sent:
    """The messages of one client_id on one label; epoch 0 is a stream without epochs."""

    label: bytes
    stream: str
    epoch: int
    client_id: bytes
    messages: int


def advice(card: IdentityCard, sent: Sequence[Sent], now: int) -> tuple[str, ...]:
    """What the owner of a card would do well to do, if anything; in the order of the labels."""
    own = [one for one in sent if one.client_id == card.client_id]
    return (*_messages(own), *_epochs(own), *_prekeys(card.prekeys, now))


def _messages(own: Iterable[Sent]) -> Iterator[str]:
    for one in own:
        if one.epoch == 0 and one.messages >= MAX_MESSAGES:
            yield (
                f"{one.messages} messages on {one.stream}, at most {MAX_MESSAGES} are recommended "
                "for one client_id: run veen id rotate"
            )


def _epochs(own: Sequence[Sent]) -> Iterator[str]:
    for stream in sorted({one.stream for one in own}):
        epochs = {one.epoch for one in own if one.stream == stream and one.messages}
        if len(epochs) > 1:
            yield (
                f"used in {len(epochs)} epochs of {stream}, one is recommended "
                "for one client_id: run veen id rotate"
            )


def _prekeys(prekeys: Sequence[SignedPrekey], now: int) -> Iterator[str]:
    last = max(prekey.expires_at for prekey in prekeys)
    if now > last:
        yield "every prekey has expired: run veen id rotate and hand out the new card"
    elif now > last - _NOTICE_SEC:
        days = (last - now) // DAY_SEC
        yield f"the prekey expires in {days} days: run veen id rotate and hand out the new card"
