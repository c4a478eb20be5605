"""Verified reading of a stream: by range, or as it grows (RESYNC0.2)."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Final
from weakref import WeakKeyDictionary

from veen import seal
from veen.client import epochs
from veen.client.errors import Unreachable
from veen.client.pages import PAGE_ITEMS, Range
from veen.client.pair import Log, Pair
from veen.client.replay import replay
from veen.client.session import Session
from veen.errors import Undecryptable
from veen.label import EpochLabels
from veen.profile import Profile
from veen.seal import Opened

FIRST_POLL_SEC: Final = 0.2
MOST_POLL_SEC: Final = 5.0

_log = logging.getLogger(__name__)
_worked: WeakKeyDictionary[Session, int] = WeakKeyDictionary()
"""Which reader key of a session opened the last message: most often it opens the next."""


def read(
    session: Session,
    labels: EpochLabels,
    name: str,
    *,
    from_seq: int = 1,
    to_seq: int | None = None,
    with_proof: bool = False,
    page_items: int = PAGE_ITEMS,
) -> Iterator[Pair]:
    """Every pair of a range, in order and verified, in memory for two pages.

    stream_seq counts within a label: of a stream with epochs, the range is read of each epoch.
    """
    wanted = Range(
        from_seq=max(from_seq, 1), to_seq=to_seq, with_proof=with_proof, page_items=page_items
    )
    for log in epochs.logs(session, labels, name):
        yield from _pairs(session, log, wanted)


def follow(
    session: Session,
    labels: EpochLabels,
    name: str,
    *,
    from_seq: int = 1,
    with_proof: bool = False,
    page_items: int = PAGE_ITEMS,
) -> Iterator[Pair]:
    """What ``read`` gives, and then what comes, until the caller stops asking.

    A hub that does not answer is asked again; one that lies ends it.
    """
    places = {log.epoch: max(from_seq, 1) for log in epochs.logs(session, labels, name)}
    pause = FIRST_POLL_SEC
    while True:
        growing = [log.epoch for log in epochs.window(session, labels, name)]
        try:
            for epoch in sorted(places.keys() | set(growing)):
                wanted = Range(
                    from_seq=places.get(epoch, 1), with_proof=with_proof, page_items=page_items
                )
                for pair in _pairs(session, Log(labels, name, epoch), wanted):
                    places[epoch] = pair.receipt.stream_seq + 1
                    pause = FIRST_POLL_SEC
                    yield pair
            places = {epoch: places.get(epoch, 1) for epoch in growing}
        except Unreachable as error:
            _log.warning("%s; asking again", error)
        session.surroundings.sleep(pause)
        pause = min(2 * pause, MOST_POLL_SEC)


def open_pair(session: Session, pair: Pair, profile: Profile) -> Opened:
    """The payload of a verified message, opened with whichever of our keys it was sealed to."""
    keys = session.identity.readers()
    last = _worked.get(session, 0)
    for number in (last, *(one for one in range(len(keys)) if one != last)):
        try:
            opened = seal.open_msg(
                private=keys[number], msg=pair.msg, profile=profile, limits=session.limits
            )
        except Undecryptable:
            continue
        _worked[session] = number
        return opened
    receipt = pair.receipt
    raise Undecryptable(
        f"stream_seq {receipt.stream_seq} of label {receipt.label.hex()} is not sealed to us: "
        f"none of our {len(keys)} keys opens it"
    )


def _pairs(session: Session, log: Log, wanted: Range) -> Iterator[Pair]:
    for page in replay(session, log, wanted):
        yield from page
