"""The checkpoints of a label, one after another, each signed and of its stream (spec 4.4.1)."""

from __future__ import annotations

from collections.abc import Iterator

from veen.checkpoint import Checkpoint
from veen.client.errors import HubRefused
from veen.client.head import is_missing
from veen.client.pair import Log
from veen.client.session import Session
from veen.client.trust import followed
from veen.errors import Untrusted
from veen.receipt import Receipt
from veen.tooling import CheckpointRangeResponse


def checkpoints(session: Session, log: Log, from_seq: int) -> Iterator[Checkpoint]:
    """Those from a place on; their roots are for the caller to compare."""
    following: int | None = from_seq
    last = from_seq - 1
    while following is not None:
        page = _page(session, log, following)
        for one in page.checkpoints:
            if one.upto_seq <= last:
                raise Untrusted(f"{log.at(one.upto_seq)}: a checkpoint out of order")
            verify(session, log, one)
            last = one.upto_seq
            yield one
        following = page.next_from_seq
        if following is not None and (not page.checkpoints or following != last + 1):
            raise Untrusted(f"{log.at(last)}: checkpoints end here and go on at {following}")


def verify(session: Session, log: Log, checkpoint: Checkpoint) -> None:
    """Refuse what no pinned key of the epoch signed, or what is of another label."""
    if checkpoint.label_curr != log.label:
        raise Untrusted(f"{log.at(checkpoint.upto_seq)}: a checkpoint of another label")
    checkpoint.verify_labels(log.labels)
    try:
        session.hub.verify_checkpoint(checkpoint, log.labels.profile)
    except Untrusted:
        offered = followed(session.hub, session.api.status().identity())
        offered.verify_checkpoint(checkpoint, log.labels.profile)


def refuse_other_root(log: Log, checkpoint: Checkpoint, receipt: Receipt) -> None:
    if checkpoint.mmr_root != receipt.mmr_root:
        raise Untrusted(
            f"{log.at(receipt.stream_seq)}: the hub signed another root in its checkpoint "
            "than in its receipt"
        )


def _page(session: Session, log: Log, from_seq: int) -> CheckpointRangeResponse:
    try:
        return session.api.checkpoint_range(log.label, from_seq)
    except HubRefused as error:
        if not is_missing(error):
            raise
        return CheckpointRangeResponse(checkpoints=())
