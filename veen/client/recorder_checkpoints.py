"""Recorder checkpoints that a client believes: of the pinned hub, and never behind an earlier one.

Whoever keeps the last document it has seen hands it in as ``earlier``.
"""

from __future__ import annotations

from collections.abc import Iterator

from veen.client.errors import HubRefused
from veen.client.head import is_missing
from veen.client.session import Session
from veen.errors import Untrusted
from veen.recorder_checkpoint import RecorderCheckpoint


def create(
    session: Session, profile_id: bytes, earlier: RecorderCheckpoint | None, *, force: bool = False
) -> RecorderCheckpoint:
    """One over all streams as they stand; the last again if nothing has moved."""
    found = session.api.recorder_checkpoint(profile_id, force=force)
    verify(session, found, earlier)
    if found.profile_id != profile_id:
        raise Untrusted("the hub made a recorder checkpoint for another profile than asked for")
    return found


def latest(session: Session, earlier: RecorderCheckpoint | None) -> RecorderCheckpoint | None:
    """The last one; None when the hub has none, which it must not say once one was seen."""
    try:
        found = session.api.recorder_checkpoint_latest()
    except HubRefused as error:
        if not is_missing(error):
            raise
        if earlier is not None:
            raise Untrusted(
                f"the hub has no recorder checkpoint, and made one at {earlier.created_at}: "
                "its directory was put back, or another hub answers"
            ) from error
        return None
    verify(session, found, earlier)
    return found


def since(session: Session, earlier: RecorderCheckpoint | None) -> Iterator[RecorderCheckpoint]:
    """All that were made after ``earlier``, each checked against the one before it."""
    last = earlier
    following: int | None = last.created_at if last else 0
    while following is not None:
        page = session.api.recorder_checkpoints(following)
        for one in page.checkpoints:
            verify(session, one, last)
            if last is not None and one.created_at == last.created_at:
                raise Untrusted(f"two recorder checkpoints of {one.created_at}")
            last = one
            yield one
        following = page.next_after
        if following is not None and (last is None or following != last.created_at):
            raise Untrusted(f"recorder checkpoints end here and go on after {following}")
        if following is not None and not page.checkpoints:
            raise Untrusted("an empty page of recorder checkpoints that is not the last")


def verify(
    session: Session, document: RecorderCheckpoint, earlier: RecorderCheckpoint | None
) -> None:
    """Refuse what the pinned hub has not signed, or what goes back behind an earlier one."""
    try:
        document.verify(session.hub)
    except Untrusted:
        # A new key may have come since we last asked.
        document.verify(session.ask_identity())
    if earlier is not None:
        document.verify_follows(earlier)
