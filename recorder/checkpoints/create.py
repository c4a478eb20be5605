"""Making a recorder checkpoint: asked of the hub, believed only if it follows the last one."""

from __future__ import annotations

from dataclasses import dataclass

from recorder.checkpoints.shelf import Shelf
from veen.client import recorder_checkpoints
from veen.client.session import Session
from veen.errors import Untrusted
from veen.recorder_checkpoint import RecorderCheckpoint


@dataclass(frozen=True, slots=True)
class Created:
    """``is_new`` is false when no stream has moved since the last one."""

    checkpoint: RecorderCheckpoint
    is_new: bool


def create(session: Session, shelf: Shelf, profile_id: bytes, *, force: bool = False) -> Created:
    """One over all streams as they stand, verified and kept; ingestion goes on meanwhile."""
    shelf.settle()
    if not shelf.names():
        shelf.fetch()
    last = shelf.latest()
    found = _asked(session, profile_id, last, force=force)
    is_new = last is None or found.checkpoint_id != last.checkpoint_id
    if is_new:
        shelf.put(found)
    return Created(found, is_new)


def _asked(
    session: Session, profile_id: bytes, last: RecorderCheckpoint | None, *, force: bool
) -> RecorderCheckpoint:
    try:
        return recorder_checkpoints.create(session, profile_id, last, force=force)
    except Untrusted as error:
        before = f"{last.checkpoint_id.hex()} of {last.created_at}" if last else "none"
        raise Untrusted(
            f"the hub's recorder checkpoint is refused: {error}. The last one kept is {before}; "
            "if the hub was put back to an older state, veen recorder checkpoint verify tells where"
        ) from error
