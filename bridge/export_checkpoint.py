"""The recorder checkpoints that an export ends at: the hub's last, or one of an earlier export."""

from __future__ import annotations

from bridge.export_state import ExportState
from veen.client import recorder_checkpoints
from veen.client.session import Session
from veen.errors import Untrusted, VeenError
from veen.recorder_checkpoint import RecorderCheckpoint


class NoCheckpoint(VeenError):
    """The hub has no recorder checkpoint to export up to."""


def latest(session: Session, state: ExportState) -> RecorderCheckpoint:
    """The hub's last one, which must not be behind the last that this exporter has seen."""
    earlier = state.last_checkpoint()
    found = recorder_checkpoints.latest(session, earlier)
    if found is None:
        raise NoCheckpoint(
            "the hub has no recorder checkpoint yet, and an export ends at one; make one with "
            "veen recorder checkpoint create"
        )
    if earlier is None or found != earlier:
        state.keep_checkpoint(found)
    return found


def found_again(session: Session, checkpoint_id: bytes, created_at: int) -> RecorderCheckpoint:
    """The very document that an export ended at before."""
    page = session.api.recorder_checkpoints(max(created_at - 1, 0), limit=10)
    for one in page.checkpoints:
        if one.checkpoint_id == checkpoint_id:
            recorder_checkpoints.verify(session, one, None)
            return one
    raise Untrusted(
        f"the hub does not have the recorder checkpoint {checkpoint_id.hex()} of {created_at} any "
        "more, which an export ended at: it was put back; restore it from its archive"
    )
