"""Recorder checkpoints: created at the hub, and verified alone, in sequence and against the hub.

Also verifies that the hub still retains every recorder stream completely (SDR0 3.2.2). Retention
is configured at the hub, so the recorder can only observe it.
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
    """A stream whose history up to ``last_seq`` is a prefix of the hub's current log."""

    name: str
    last_seq: int
    head_seq: int


def verify_chain(documents: Iterable[RecorderCheckpoint], hub: HubIdentity) -> int:
    """Verify that all documents are the hub's and that none goes back; return how many."""
    previous, count = None, 0
    for document in documents:
        verify_next(document, previous, hub)
        previous, count = document, count + 1
    return count


def verify_next(
    document: RecorderCheckpoint, previous: RecorderCheckpoint | None, hub: HubIdentity
) -> None:
    try:
        document.verify(hub)
        if previous is not None:
            document.verify_follows(previous)
    except Untrusted as error:
        raise Untrusted(
            f"recorder checkpoint {document.checkpoint_id.hex()} of {document.created_at}: {error}"
        ) from error


def verify_on_hub(session: Session, document: RecorderCheckpoint) -> Iterator[StreamHeld]:
    """Verify by consistency proofs, stream by stream, that the hub still holds what it signed."""
    for name, end in zip(document.names, document.ends, strict=True):
        yield StreamHeld(name, end.last_seq, _head_seq(session, name, end))


def _head_seq(session: Session, name: str, end: StreamEnd) -> int:
    log = LabelLogRef(session.labels(name, DEFAULT_PROFILE), name, 0)
    head = read_log_head(session, log, end.last_seq)
    if head is None or not end.last_seq:
        return head.stream_seq if head is not None else 0
    try:
        verify_consistency(
            session.api.consistency(log.label, end.last_seq, head.stream_seq),
            old_size=end.last_seq,
            old_root=end.mmr_root,
            new_size=head.stream_seq,
            new_root=head.mmr_root,
        )
    except Untrusted as error:
        raise Untrusted(
            f"{log.at(end.last_seq)}: the hub's log does not extend the log that it signed in the "
            f"checkpoint (consistency proof): {error}"
        ) from error
    return head.stream_seq


@dataclass(frozen=True, slots=True)
class CheckpointCreated:
    """A checkpoint; ``is_new`` is false when no stream has grown since the last."""

    checkpoint: RecorderCheckpoint
    is_new: bool


def create_checkpoint(
    session: Session, checkpoint_store: CheckpointStore, profile_id: bytes, *, force: bool = False
) -> CheckpointCreated:
    """Create a checkpoint over all streams, verify and store it; ingestion continues meanwhile."""
    checkpoint_store.settle()
    if not checkpoint_store.newest(1):
        checkpoint_store.fetch()
    last = checkpoint_store.latest()
    checkpoint = _request(session, profile_id, last, force=force)
    is_new = last is None or checkpoint.checkpoint_id != last.checkpoint_id
    if is_new:
        checkpoint_store.put(checkpoint)
    return CheckpointCreated(checkpoint, is_new)


def _request(
    session: Session, profile_id: bytes, last: RecorderCheckpoint | None, *, force: bool
) -> RecorderCheckpoint:
    try:
        return create_recorder_checkpoint(session, profile_id, last, force=force)
    except Untrusted as error:
        latest = f"{last.checkpoint_id.hex()} of {last.created_at}" if last else "none"
        raise Untrusted(
            f"the hub's recorder checkpoint is refused: {error}. The last one stored is {latest}; "
            "if the hub was restored to an older state, veen recorder checkpoint verify shows where"
        ) from error


class PrunedStream(NamedTuple):
    """A stream whose entries before ``first_seq`` were pruned by the hub."""

    stream: str
    first_seq: int

    def describe(self) -> str:
        return (
            f"{self.stream} is kept long term, and the hub has taken away its events up to "
            f"{self.first_seq - 1}: see [[retention]] of the hub; an archive may still have them"
        )


def pruned(session: Session, heads: Mapping[str, int]) -> Iterator[PrunedStream]:
    """Yield pruned recorder streams, with one request each.

    ``heads`` is the last stream_seq of each.
    """
    for name, head in heads.items():
        if not head or not name.startswith(NAMESPACE):
            continue
        log = LabelLogRef(session.labels(name, DEFAULT_PROFILE), name, 0)
        if not is_readable(session.api, log.label, 1):
            yield PrunedStream(name, first_readable(session.api, log.label, 1, head))
