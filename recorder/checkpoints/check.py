"""Whether recorder checkpoints hold: by themselves, one after another, and against the hub."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from veen.client.head import head
from veen.client.pair import Log
from veen.client.session import Session
from veen.errors import Untrusted
from veen.hub_identity import HubIdentity
from veen.profile import DEFAULT_PROFILE
from veen.range_proof import verify_consistency
from veen.recorder_checkpoint import RecorderCheckpoint, StreamEnd


@dataclass(frozen=True, slots=True)
class StreamHeld:
    """A stream whose history up to ``last_seq`` is still the beginning of the hub's."""

    name: str
    last_seq: int
    head_seq: int


def verify_chain(documents: Iterable[RecorderCheckpoint], hub: HubIdentity) -> int:
    """Refuse unless all are the hub's and none goes back behind the one before it; how many."""
    before, count = None, 0
    for one in documents:
        verify_next(one, before, hub)
        before, count = one, count + 1
    return count


def verify_next(
    document: RecorderCheckpoint, before: RecorderCheckpoint | None, hub: HubIdentity
) -> None:
    try:
        document.verify(hub)
        if before is not None:
            document.verify_follows(before)
    except Untrusted as error:
        raise Untrusted(
            f"recorder checkpoint {document.checkpoint_id.hex()} of {document.created_at}: {error}"
        ) from error


def verify_on_hub(session: Session, document: RecorderCheckpoint) -> Iterator[StreamHeld]:
    """Have the hub prove, stream by stream, that it still holds what it signed then."""
    for name, end in zip(document.names, document.ends, strict=True):
        yield StreamHeld(name, end.last_seq, _head_seq(session, name, end))


def _head_seq(session: Session, name: str, end: StreamEnd) -> int:
    log = Log(session.labels(name, DEFAULT_PROFILE), name, 0)
    now = head(session, log, end.last_seq)
    if now is None or not end.last_seq:
        return now.stream_seq if now is not None else 0
    try:
        verify_consistency(
            session.api.consistency(log.label, end.last_seq, now.stream_seq),
            old_size=end.last_seq,
            old_root=end.mmr_root,
            new_size=now.stream_seq,
            new_root=now.mmr_root,
        )
    except Untrusted as error:
        raise Untrusted(
            f"{log.at(end.last_seq)}: what the hub holds now does not begin with what it signed "
            f"in the checkpoint: {error}"
        ) from error
    return now.stream_seq
