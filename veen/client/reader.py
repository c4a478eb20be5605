"""Verified reading of a stream: by range, or as it grows (RESYNC0.2).

Which epochs of a stream have a log: as the hub lists them, or found by looking.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Final
from weakref import WeakKeyDictionary

from veen.client.log_head import LabelLogRef, Pair, exists
from veen.client.session import Session
from veen.client.transport import HubRefused, Unreachable
from veen.client.verified_read import PAGE_ITEMS, LabelRange, replay
from veen.errors import Undecryptable, Untrusted
from veen.label import EpochLabels, Profile
from veen.payload import Opened, open_msg


def epoch_logs(session: Session, labels: EpochLabels, name: str) -> list[LabelLogRef]:
    """The logs of a stream in the order of its epochs; without epochs there is one.

    Those we have a view of are among them: a hub that hides one is found out when it is read.
    """
    if not labels.profile.epoch_sec:
        return [LabelLogRef(labels, name, 0)]
    run = _listed(session, labels)
    if run is None:
        run = set(_run(session, labels))
    return [LabelLogRef(labels, name, epoch) for epoch in sorted(run | _seen(session, labels))]


def is_known(session: Session, labels: EpochLabels, name: str) -> bool:
    """Whether the hub lists the stream, or has entries of it in any epoch."""
    if _listed(session, labels) is not None:
        return True
    return any(exists(session, log.label, 1) for log in epoch_logs(session, labels, name))


def epoch_window(session: Session, labels: EpochLabels, name: str) -> list[LabelLogRef]:
    """The logs that may still grow: of the epochs that the hub admits now."""
    near = labels.profile.epochs(session.hub_now(), session.limits.max_epoch_skew_sec)
    return [LabelLogRef(labels, name, epoch) for epoch in near]


def current_epoch(
    session: Session, labels: EpochLabels, name: str, epoch: int | None
) -> LabelLogRef:
    """The log of an epoch, or of the one that it is now."""
    now = labels.profile.epoch(session.hub_now())
    return LabelLogRef(labels, name, now if epoch is None else epoch)


def _listed(session: Session, labels: EpochLabels) -> set[int] | None:
    """What the hub lists for a stream it knows by name; None where it does not, or may not."""
    try:
        streams = session.api.streams()
    except HubRefused as error:
        if not error.is_about_access:
            raise
        return None
    for stream in streams:
        if stream.stream_id == labels.stream_id:
            for label in stream.labels:
                if label.label != labels.at(label.epoch):
                    raise Untrusted(f"{stream.name}: the hub lists a wrong label for {label.epoch}")
            return {label.epoch for label in stream.labels if label.last_stream_seq}
    return None


def _run(session: Session, labels: EpochLabels) -> Iterator[int]:
    """Around now, and from there back as long as every epoch has entries."""
    near = labels.profile.epochs(session.hub_now(), session.limits.max_epoch_skew_sec)
    for epoch in reversed(near):
        if exists(session, labels.at(epoch), 1):
            yield epoch
    epoch = near.start - 1
    while epoch >= 0 and exists(session, labels.at(epoch), 1):
        yield epoch
        epoch -= 1


def _seen(session: Session, labels: EpochLabels) -> set[int]:
    views = session.state.views.items()
    return {view.epoch for label, view in views if view.seen and label == labels.at(view.epoch)}


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
    range_ = LabelRange(
        from_seq=max(from_seq, 1), to_seq=to_seq, with_proof=with_proof, page_items=page_items
    )
    for log in epoch_logs(session, labels, name):
        yield from _pairs(session, log, range_)


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
    places = {log.epoch: max(from_seq, 1) for log in epoch_logs(session, labels, name)}
    pause = FIRST_POLL_SEC
    while True:
        growing = [log.epoch for log in epoch_window(session, labels, name)]
        try:
            for epoch in sorted(places.keys() | set(growing)):
                range_ = LabelRange(
                    from_seq=places.get(epoch, 1), with_proof=with_proof, page_items=page_items
                )
                for pair in _pairs(session, LabelLogRef(labels, name, epoch), range_):
                    places[epoch] = pair.receipt.stream_seq + 1
                    pause = FIRST_POLL_SEC
                    yield pair
            places = {epoch: places.get(epoch, 1) for epoch in growing}
        except Unreachable as error:
            _log.warning("%s; asking again", error)
        session.runtime.sleep(pause)
        pause = min(2 * pause, MOST_POLL_SEC)


def open_pair(session: Session, pair: Pair, profile: Profile) -> Opened:
    """The payload of a verified message, opened with whichever of our keys it was sealed to."""
    keys = session.identity.readers()
    last = _worked.get(session, 0)
    for number in (last, *(item for item in range(len(keys)) if item != last)):
        try:
            opened = open_msg(
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


def _pairs(session: Session, log: LabelLogRef, range_: LabelRange) -> Iterator[Pair]:
    for page in replay(session, log, range_):
        yield from page
