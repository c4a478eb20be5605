"""Verified reading of a stream, by range or following its growth (RESYNC0.2).

The epochs of a stream that have a log are those that the hub lists, or are searched.
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

FIRST_POLL_SEC: Final = 0.2
MOST_POLL_SEC: Final = 5.0
_log = logging.getLogger(__name__)
_last_key: WeakKeyDictionary[Session, int] = WeakKeyDictionary()
"""The index of the reader key that opened the last message, which is tried first."""


def epoch_logs(session: Session, labels: EpochLabels, name: str) -> list[LabelLogRef]:
    """The logs of a stream in the order of its epochs; a single one without epochs.

    Those we have a view of are included, so a hub cannot hide them.
    """
    if not labels.profile.epoch_sec:
        return [LabelLogRef(labels, name, 0)]
    run = _listed(session, labels)
    if run is None:
        run = set(_search_epochs(session, labels))
    return [LabelLogRef(labels, name, epoch) for epoch in sorted(run | _seen(session, labels))]


def is_known(session: Session, labels: EpochLabels, name: str) -> bool:
    """Whether the hub lists the stream, or has entries of it in any epoch."""
    if _listed(session, labels) is not None:
        return True
    return any(exists(session, log.label, 1) for log in epoch_logs(session, labels, name))


def epoch_window(session: Session, labels: EpochLabels, name: str) -> list[LabelLogRef]:
    """The logs that may still grow: those of the epochs that the hub accepts now."""
    near = labels.profile.epochs(session.hub_now(), session.limits.max_epoch_skew_sec)
    return [LabelLogRef(labels, name, epoch) for epoch in near]


def current_epoch(
    session: Session, labels: EpochLabels, name: str, epoch: int | None
) -> LabelLogRef:
    """The log of an epoch, by default the current."""
    now = labels.profile.epoch(session.hub_now())
    return LabelLogRef(labels, name, now if epoch is None else epoch)


def _listed(session: Session, labels: EpochLabels) -> set[int] | None:
    """The epochs that the hub lists for a named stream; None if unknown or not permitted."""
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


def _search_epochs(session: Session, labels: EpochLabels) -> Iterator[int]:
    """Epochs with entries: those around now, then back until the first without entries."""
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
    """Every pair of a range, verified and in order; at most two pages are in memory.

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
    """Every pair of a range, then new pairs as they come, until the caller stops.

    A hub that does not answer is polled again; an invalid answer is raised.
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
    """The payload of a verified message, opened with one of our keys."""
    keys = session.identity.readers()
    last = _last_key.get(session, 0)
    for number in (last, *(other for other in range(len(keys)) if other != last)):
        try:
            opened = open_msg(
                private=keys[number], msg=pair.msg, profile=profile, limits=session.limits
            )
        except Undecryptable:
            continue
        _last_key[session] = number
        return opened
    receipt = pair.receipt
    raise Undecryptable(
        f"stream_seq {receipt.stream_seq} of label {receipt.label.hex()} is not sealed to "
        f"this identity: none of its {len(keys)} keys opens it"
    )


def _pairs(session: Session, log: LabelLogRef, range_: LabelRange) -> Iterator[Pair]:
    for page in replay(session, log, range_):
        yield from page
