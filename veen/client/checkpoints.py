"""Verification of checkpoints and recorder checkpoints (spec 4.4.1, SDR0 3.2.4).

Label checkpoints are verified against signatures, labels and receipts; ``verify_recomputed``
computes the root again from the messages that a hub serves. Recorder checkpoints must be of the
pinned hub and must not go back behind ``earlier``, the last document that the caller has stored.
"""

from __future__ import annotations

from collections.abc import Iterator

from veen.checkpoint import Checkpoint
from veen.client.hub_api import HubApi
from veen.client.log_head import LabelLogRef, first_readable, is_missing, is_readable
from veen.client.session import Session
from veen.client.transport import HubRefused
from veen.client.verified_read import LabelRange, pages
from veen.errors import Untrusted
from veen.hub_identity import HubIdentity
from veen.mmr import EMPTY, Peaks
from veen.msg import Msg
from veen.receipt import Receipt
from veen.recorder_checkpoint import RecorderCheckpoint
from veen.system.environment import Progress, no_progress
from veen.wire.api import CheckpointRangeResponse


def checkpoints(session: Session, log: LabelLogRef, from_seq: int) -> Iterator[Checkpoint]:
    """The checkpoints from a stream_seq on; only order and label are verified."""
    following: int | None = from_seq
    last = from_seq - 1
    while following is not None:
        page = _page(session, log, following)
        for checkpoint in page.checkpoints:
            if checkpoint.upto_seq <= last:
                raise Untrusted(f"{log.at(checkpoint.upto_seq)}: the checkpoint is out of order")
            _verify_label(log, checkpoint)
            last = checkpoint.upto_seq
            yield checkpoint
        following = page.next_from_seq
        if following is not None and (not page.checkpoints or following != last + 1):
            raise Untrusted(
                f"{log.at(last)}: expected checkpoints to continue here, got the next one at "
                f"{following}"
            )


def verify_checkpoint(
    session: Session, log: LabelLogRef, checkpoint: Checkpoint, receipt: Receipt
) -> None:
    """Raise Untrusted unless a checkpoint agrees with the verified receipt at its upto_seq.

    The receipt's hub_ts determines which keys can have signed it.
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


def verify_signature(
    session: Session, log: LabelLogRef, checkpoint: Checkpoint, hub_ts: int
) -> None:
    """Raise Untrusted for another label, or unless a pinned key valid after hub_ts signed it.

    For a pruned entry ``hub_ts`` may be that of an earlier entry.
    """
    _verify_label(log, checkpoint)
    session.verify_checkpoint(checkpoint, log.labels.profile, hub_ts)


def _verify_label(log: LabelLogRef, checkpoint: Checkpoint) -> None:
    if checkpoint.label_curr != log.label:
        raise Untrusted(f"{log.at(checkpoint.upto_seq)}: the checkpoint belongs to another label")
    checkpoint.verify_labels(log.labels)


def _page(session: Session, log: LabelLogRef, from_seq: int) -> CheckpointRangeResponse:
    try:
        return session.api.checkpoint_range(log.label, from_seq)
    except HubRefused as error:
        if not is_missing(error):
            raise
        return CheckpointRangeResponse(checkpoints=())


def create_recorder_checkpoint(
    session: Session, profile_id: bytes, earlier: RecorderCheckpoint | None, *, force: bool = False
) -> RecorderCheckpoint:
    """A verified document over all streams; the last one if no stream has moved."""
    document = session.api.recorder_checkpoint(profile_id, force=force)
    verify_recorder_checkpoint(session, document, earlier)
    if document.profile_id != profile_id:
        raise Untrusted("the hub made a recorder checkpoint for another profile than asked for")
    return document


def latest_recorder_checkpoint(
    session: Session, earlier: RecorderCheckpoint | None
) -> RecorderCheckpoint | None:
    """The last document, or None if the hub has none and ``earlier`` is None."""
    try:
        document = session.api.recorder_checkpoint_latest()
    except HubRefused as error:
        if not is_missing(error):
            raise
        if earlier is not None:
            raise Untrusted(
                f"the hub has no recorder checkpoint, and made one at {earlier.created_at}: "
                "its directory was restored from a backup, or another hub answers"
            ) from error
        return None
    verify_recorder_checkpoint(session, document, earlier)
    return document


def recorder_checkpoints_since(
    session: Session, earlier: RecorderCheckpoint | None
) -> Iterator[RecorderCheckpoint]:
    """All documents after ``earlier``, each verified against the one before it."""
    last = earlier
    following: int | None = last.created_at if last else 0
    while following is not None:
        page = session.api.recorder_checkpoints(following)
        for checkpoint in page.checkpoints:
            verify_recorder_checkpoint(session, checkpoint, last)
            if last is not None and checkpoint.created_at == last.created_at:
                raise Untrusted(
                    f"two different recorder checkpoints with created_at {checkpoint.created_at}"
                )
            last = checkpoint
            yield checkpoint
        following = page.next_after
        if following is not None and (last is None or following != last.created_at):
            raise Untrusted(
                f"expected recorder checkpoints without a gap, got the next one after {following}"
            )
        if following is not None and not page.checkpoints:
            raise Untrusted("expected recorder checkpoints, got an empty page that is not the last")


def verify_recorder_checkpoint(
    session: Session, document: RecorderCheckpoint, earlier: RecorderCheckpoint | None
) -> None:
    """Raise Untrusted unless the pinned hub signed it and it follows ``earlier``."""
    try:
        document.verify(session.hub)
    except Untrusted:
        # The hub may have rotated its key.
        document.verify(session.ask_identity())
    if earlier is not None:
        document.verify_follows(earlier)


def verify_recomputed(
    api: HubApi,
    log: LabelLogRef,
    hub: HubIdentity,
    checkpoint: Checkpoint,
    progress: Progress = no_progress,
) -> int:
    """Raise Untrusted unless the messages up to a checkpoint have its root; the number read.

    If the first entries are pruned, the oldest receipt confirms the peaks before it.
    """
    upto = checkpoint.upto_seq
    first = 1 if is_readable(api, log.label, 1) else first_readable(api, log.label, 1, upto)
    peaks = EMPTY if first == 1 else _peaks_before(api, log, hub, first)
    for page in pages(api, log, LabelRange(from_seq=first, to_seq=upto)):
        for entry in page.items:
            peaks = peaks.append(_leaf(log, entry.stream_seq, entry.msg))
        progress(peaks.size - first + 1, upto - first + 1)
    if peaks.size != upto:
        raise Untrusted(f"{log.at(upto)}: expected entries up to here, got them up to {peaks.size}")
    if peaks.root() != checkpoint.mmr_root:
        raise Untrusted(
            f"{log.at(upto)}: the messages have root {peaks.root().hex()}, "
            f"the checkpoint says {checkpoint.mmr_root.hex()}"
        )
    return upto - first + 1


def signed_receipt(api: HubApi, log: LabelLogRef, hub: HubIdentity, seq: int) -> Receipt:
    """The receipt of a place, signed by a key of the hub valid at its hub_ts."""
    receipt = api.receipt(log.label, seq)
    if (receipt.label, receipt.stream_seq) != (log.label, seq):
        raise Untrusted(
            f"{log.at(seq)}: expected the receipt of this stream_seq, got that of "
            f"{receipt.stream_seq}"
        )
    hub.verify_receipt(receipt)
    return receipt


def _leaf(log: LabelLogRef, seq: int, raw: bytes) -> bytes:
    msg = Msg.decode(raw)
    if msg.label != log.label or not msg.ct_hash_matches():
        raise Untrusted(f"{log.at(seq)}: the message has another label, or was altered")
    return msg.leaf_hash()


def _peaks_before(api: HubApi, log: LabelLogRef, hub: HubIdentity, first: int) -> Peaks:
    receipt = signed_receipt(api, log, hub, first)
    proof = api.consistency(log.label, first - 1, first)
    peaks = proof.before()
    if peaks.size != first - 1 or peaks.append(receipt.leaf_hash).root() != receipt.mmr_root:
        raise Untrusted(
            f"{log.at(first)}: the peaks of the hub do not give the root of its receipt"
        )
    return peaks
