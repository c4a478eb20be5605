"""How far a label goes: the end of what a hub shows of it, as a receipt that it signed."""

from __future__ import annotations

from veen.client.errors import HubRefused
from veen.client.pair import Log
from veen.client.session import Session
from veen.errors import Code, Untrusted
from veen.receipt import Receipt


def is_missing(error: HubRefused) -> bool:
    return error.code == Code.NOT_FOUND.value


def exists(session: Session, label: bytes, seq: int) -> bool:
    """Whether the label has a ``seq``; its proofs outlive entries that retention took away."""
    try:
        session.api.consistency(label, seq, seq)
    except HubRefused as error:
        if not is_missing(error):
            raise
        return False
    return True


def head(session: Session, log: Log, known: int) -> Receipt | None:
    """The receipt at the end of a label, in O(log n) requests; None where there is nothing.

    No route tells the end of a label that has no name, so it is looked for: from what the hub
    has signed before, ``known``, upwards, or from its latest checkpoint.
    """
    if known and not exists(session, log.label, known):
        raise Untrusted(f"{log.at(known)}: the hub signed it once and now says it is not there")
    size = _size(session, log.label, max(known, _hint(session, log.label)))
    return receipt_at(session, log, size) if size else None


def receipt_at(session: Session, log: Log, seq: int) -> Receipt:
    """The receipt of a place, signed by the pinned hub."""
    found = session.api.receipt(log.label, seq)
    if (found.label, found.stream_seq) != (log.label, seq):
        raise Untrusted(f"{log.at(seq)}: the receipt is of {found.stream_seq}, or another label")
    session.verify_receipt(found)
    return found


def is_readable(session: Session, log: Log, seq: int) -> bool:
    """Whether the entry itself is still there."""
    try:
        session.api.receipt(log.label, seq)
    except HubRefused as error:
        if not is_missing(error):
            raise
        return False
    return True


def first_readable(session: Session, log: Log, gone: int, there: int) -> int:
    """Retention takes entries from the start, without holes; the last one is always there."""
    while there - gone > 1:
        middle = (gone + there) // 2
        if is_readable(session, log, middle):
            there = middle
        else:
            gone = middle
    return there


def _hint(session: Session, label: bytes) -> int:
    """The size of the latest checkpoint, if there is one; nothing is believed of it."""
    try:
        found = session.api.checkpoint_latest(label).upto_seq
    except HubRefused as error:
        if not is_missing(error):
            raise
        return 0
    return found if exists(session, label, found) else 0


def _size(session: Session, label: bytes, least: int) -> int:
    low, step = least, 1
    while exists(session, label, low + step):
        low, step = low + step, 2 * step
    high = low + step
    while high - low > 1:
        middle = (low + high) // 2
        if exists(session, label, middle):
            low = middle
        else:
            high = middle
    return low
