"""Which epochs of a stream have a log: as the hub lists them, or found by looking."""

from __future__ import annotations

from collections.abc import Iterator

from veen.client.errors import HubRefused
from veen.client.head import exists
from veen.client.pair import Log
from veen.client.session import Session
from veen.errors import Untrusted
from veen.label import EpochLabels


def logs(session: Session, labels: EpochLabels, name: str) -> list[Log]:
    """The logs of a stream in the order of its epochs; without epochs there is one.

    Those we have a view of are among them: a hub that hides one is found out when it is read.
    """
    if not labels.profile.epoch_sec:
        return [Log(labels, name, 0)]
    found = _listed(session, labels)
    if found is None:
        found = set(_run(session, labels))
    return [Log(labels, name, epoch) for epoch in sorted(found | _seen(session, labels))]


def is_known(session: Session, labels: EpochLabels, name: str) -> bool:
    """Whether the hub lists the stream, or has entries of it in any epoch."""
    if _listed(session, labels) is not None:
        return True
    return any(exists(session, log.label, 1) for log in logs(session, labels, name))


def window(session: Session, labels: EpochLabels, name: str) -> list[Log]:
    """The logs that may still grow: of the epochs that the hub admits now."""
    near = labels.profile.epochs(session.hub_now(), session.limits.max_epoch_skew_sec)
    return [Log(labels, name, epoch) for epoch in near]


def current(session: Session, labels: EpochLabels, name: str, epoch: int | None) -> Log:
    """The log of an epoch, or of the one that it is now."""
    now = labels.profile.epoch(session.hub_now())
    return Log(labels, name, now if epoch is None else epoch)


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
            for one in stream.labels:
                if one.label != labels.at(one.epoch):
                    raise Untrusted(f"{stream.name}: the hub lists a wrong label for {one.epoch}")
            return {one.epoch for one in stream.labels if one.last_stream_seq}
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
