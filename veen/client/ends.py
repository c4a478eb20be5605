"""Where a range ends: not before what the hub has signed to us, nor in another history."""

from __future__ import annotations

from veen.client import evidence
from veen.client.errors import HubRefused
from veen.client.head import exists, is_missing, receipt_at
from veen.client.pages import Range
from veen.client.pair import Log
from veen.client.session import Session
from veen.client.view import LabelView
from veen.errors import Untrusted


def refuse_short(log: Log, wanted: Range, size: int, view: LabelView) -> None:
    due = view.seen if wanted.to_seq is None else min(view.seen, wanted.to_seq)
    if wanted.from_seq <= due and size < due:
        raise Untrusted(f"{log.at(size)}: the hub ends here, though it signed {view.seen} before")


def refuse_other_end(session: Session, log: Log, view: LabelView) -> None:
    """Where there is nothing to read, what the hub signed last must still stand."""
    ours = view.unlinked or view.head
    if ours is None:
        return
    try:
        theirs = receipt_at(session, log, ours.stream_seq)
    except HubRefused as error:
        if not is_missing(error):
            raise
        if exists(session, log.label, ours.stream_seq):
            return
        raise Untrusted(f"{log.at(ours.stream_seq)}: the hub has it no more") from error
    if ours.contradicts(theirs):
        raise evidence.keep(session, ours, theirs)
