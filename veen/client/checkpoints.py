"""The checkpoints of a label, one after another, each signed and of its stream (spec 4.4.1)."""

from __future__ import annotations

from collections.abc import Iterator

from veen.checkpoint import Checkpoint
from veen.client.errors import HubRefused
from veen.client.head import is_missing
from veen.client.pair import Log
from veen.client.session import Session
from veen.errors import Untrusted
from veen.receipt import Receipt
from veen.tooling import CheckpointRangeResponse


def checkpoints(session: Session, log: Log, from_seq: int) -> Iterator[Checkpoint]:
    """Those from a place on, unverified but for order and label: each is for ``verify``."""
    following: int | None = from_seq
    last = from_seq - 1
    while following is not None:
        page = _page(session, log, following)
        for one in page.checkpoints:
            if one.upto_seq <= last:
                raise Untrusted(f"{log.at(one.upto_seq)}: a checkpoint out of order")
            _verify_label(log, one)
            last = one.upto_seq
            yield one
        following = page.next_from_seq
        if following is not None and (not page.checkpoints or following != last + 1):
            raise Untrusted(f"{log.at(last)}: checkpoints end here and go on at {following}")


def verify(session: Session, log: Log, checkpoint: Checkpoint, receipt: Receipt) -> None:
    """Refuse a checkpoint that does not agree with the verified receipt at its upto_seq.

    The receipt's hub_ts says which keys can have signed it.
    """
    if checkpoint.upto_seq != receipt.stream_seq:
        raise Untrusted(
            f"{log.at(receipt.stream_seq)}: expected a checkpoint up to here, "
            f"got one up to {checkpoint.upto_seq}"
        )
    verify_signature(session, log, checkpoint, receipt.hub_ts)
    if checkpoint.mmr_root != receipt.mmr_root:
        raise Untrusted(
            f"{log.at(receipt.stream_seq)}: the hub signed another root in its checkpoint "
            "than in its receipt"
        )


def verify_signature(session: Session, log: Log, checkpoint: Checkpoint, hub_ts: int) -> None:
    """Refuse a checkpoint of another label, or that no pinned key in use after hub_ts signed.

    For an entry that retention took away ``hub_ts`` may be that of an earlier one.
    """
    _verify_label(log, checkpoint)
    session.verify_checkpoint(checkpoint, log.labels.profile, hub_ts)


def _verify_label(log: Log, checkpoint: Checkpoint) -> None:
    if checkpoint.label_curr != log.label:
        raise Untrusted(f"{log.at(checkpoint.upto_seq)}: a checkpoint of another label")
    checkpoint.verify_labels(log.labels)


def _page(session: Session, log: Log, from_seq: int) -> CheckpointRangeResponse:
    try:
        return session.api.checkpoint_range(log.label, from_seq)
    except HubRefused as error:
        if not is_missing(error):
            raise
        return CheckpointRangeResponse(checkpoints=())
