"""Whether recorder checkpoints hold: by themselves, one after another, and against the hub.

Making a recorder checkpoint: asked of the hub, believed only if it follows the last one.

Whether a hub still holds all of its recorder streams, which are kept long term (SDR0 3.2.2).

What is kept is the word of the hub's configuration, not of ours: it can only be looked at.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from recorder.checkpoints.store import CheckpointStore
from recorder.stream_map import NAMESPACE
from veen.client.checkpoints import create_recorder_checkpoint
from veen.client.log_head import LabelLogRef, first_readable, is_readable, read_log_head
from veen.client.session import Session
from veen.errors import Untrusted
from veen.hub_identity import HubIdentity
from veen.label import DEFAULT_PROFILE
from veen.proofs import verify_consistency
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
    for document in documents:
        verify_next(document, before, hub)
        before, count = document, count + 1
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
    log = LabelLogRef(session.labels(name, DEFAULT_PROFILE), name, 0)
    now = read_log_head(session, log, end.last_seq)
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


@dataclass(frozen=True, slots=True)
class CheckpointCreated:
    """``is_new`` is false when no stream has moved since the last one."""

    checkpoint: RecorderCheckpoint
    is_new: bool


def create_checkpoint(
    session: Session, checkpoint_store: CheckpointStore, profile_id: bytes, *, force: bool = False
) -> CheckpointCreated:
    """One over all streams as they stand, verified and kept; ingestion goes on meanwhile."""
    checkpoint_store.settle()
    if not checkpoint_store.names():
        checkpoint_store.fetch()
    last = checkpoint_store.latest()
    result = _asked(session, profile_id, last, force=force)
    is_new = last is None or result.checkpoint_id != last.checkpoint_id
    if is_new:
        checkpoint_store.put(result)
    return CheckpointCreated(result, is_new)


def _asked(
    session: Session, profile_id: bytes, last: RecorderCheckpoint | None, *, force: bool
) -> RecorderCheckpoint:
    try:
        return create_recorder_checkpoint(session, profile_id, last, force=force)
    except Untrusted as error:
        before = f"{last.checkpoint_id.hex()} of {last.created_at}" if last else "none"
        raise Untrusted(
            f"the hub's recorder checkpoint is refused: {error}. The last one kept is {before}; "
            "if the hub was put back to an older state, veen recorder checkpoint verify tells where"
        ) from error


class PrunedStream(NamedTuple):
    """A stream of which the hub has taken away what is before ``first_seq``."""

    stream: str
    first_seq: int

    def describe(self) -> str:
        return (
            f"{self.stream} is kept long term, and the hub has taken away its events up to "
            f"{self.first_seq - 1}: see [[retention]] of the hub; an archive may still have them"
        )


def pruned(session: Session, heads: Mapping[str, int]) -> Iterator[PrunedStream]:
    """By one question for each stream; ``heads`` is the last stream_seq of each."""
    for name, head in heads.items():
        if not head or not name.startswith(NAMESPACE):
            continue
        log = LabelLogRef(session.labels(name, DEFAULT_PROFILE), name, 0)
        if not is_readable(session, log, 1):
            yield PrunedStream(name, first_readable(session, log, 1, head))
