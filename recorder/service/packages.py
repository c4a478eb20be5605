"""The proof package of a result, built from the files on disk and the index."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from recorder.anchor.anchors import read_refs
from recorder.checkpoints.store import CheckpointDirectory, HubIdentityFile
from recorder.index.reader import Snapshot, snapshot
from recorder.index.tables import IndexHome
from recorder.query.descriptor import Descriptor
from recorder.query.digest import ResultDigest, row_hash
from recorder.query.evidence import Witness, is_sampled
from recorder.query.package import Package, PackageAnchor, RecordedMessage, RowHashes, ShownWitness
from recorder.query.select import Row
from recorder.service.database import Query, RecordRef
from recorder.service.errors import ErrorCode, Refusal
from recorder.service.execute import (
    CHECKPOINT_FILE,
    WITNESS_FILE,
    RowsFile,
    descriptor_of,
    read_witnesses,
)
from recorder.settings import RecorderSettings
from veen.label import derive_label, routing_key, stream_id
from veen.msg import Msg
from veen.proofs import InclusionProof
from veen.recorder_checkpoint import RecorderCheckpoint

MAX_WITNESS_BYTES: Final = 256 << 20
MAX_WHOLE_ROWS: Final = 100_000
"""The package of a larger result has only hashes of its rows; the rows are read by pages."""


class Proofs:
    """Builds proof packages."""

    def __init__(
        self, settings: RecorderSettings, index: IndexHome, identity_file: HubIdentityFile
    ) -> None:
        self._settings = settings
        self._index = index
        self._identity_file = identity_file

    def package(self, query: Query, rows: RowsFile) -> bytes:
        """Build the package of a completed query; result_not_ready until its digest is indexed."""
        checkpoint = RecorderCheckpoint.decode(rows.file(CHECKPOINT_FILE))
        digest = ResultDigest.decode(query.digest or b"")
        descriptor = descriptor_of(query)
        hub, signature = self._identity_file.read()
        with snapshot(self._index) as held:
            later = _later(held, checkpoint, (query.request_event, query.result_event))
            return Package(
                descriptor=descriptor,
                digest=digest,
                rows=_rows(rows),
                witnesses=_shown_witnesses(descriptor, digest, checkpoint, rows),
                hub=hub,
                hub_signature=signature,
                checkpoint=checkpoint,
                later_checkpoint=later,
                request=_recorded(held, query.request_event, later),
                result=_recorded(held, query.result_event, later),
                anchors=self._anchors(checkpoint),
            ).encode()

    def _anchors(self, checkpoint: RecorderCheckpoint) -> tuple[PackageAnchor, ...]:
        """The anchors beside the checkpoint on this host."""
        folder = CheckpointDirectory(self._settings.checkpoint.path).anchors_of(
            checkpoint.checkpoint_id
        )
        return tuple(PackageAnchor(ref.kind, ref.anchor_ref) for ref in read_refs(folder))


def _rows(rows: RowsFile) -> tuple[Row, ...] | RowHashes:
    if rows.count() <= MAX_WHOLE_ROWS:
        return tuple(rows.all())
    return RowHashes(tuple(row_hash(line) for line in rows.lines()))


def _shown_witnesses(
    descriptor: Descriptor, digest: ResultDigest, checkpoint: RecorderCheckpoint, rows: RowsFile
) -> tuple[ShownWitness, ...]:
    """The witnesses with their events; which events were sampled is computed, not stored."""
    streams = _labels(checkpoint, descriptor.scope)
    sampled = (
        index
        for index in range(digest.event_count)
        if is_sampled(descriptor.evidence, descriptor.query_id, checkpoint.log_root, index)
    )
    witnesses = read_witnesses(_bounded(rows.file(WITNESS_FILE, MAX_WITNESS_BYTES + 1)))
    return tuple(
        ShownWitness(index, streams[_label_of(witness)], witness)
        for index, witness in zip(sampled, witnesses, strict=True)
    )


def _bounded(raw: bytes) -> bytes:
    if len(raw) > MAX_WITNESS_BYTES:
        raise Refusal(
            ErrorCode.EXECUTION_FAILED,
            f"the package would hold more than {MAX_WITNESS_BYTES} bytes of witnesses; narrow the "
            "query, ask for evidence spot, or replay it over an index",
        )
    return raw


def _labels(checkpoint: RecorderCheckpoint, scope: Iterable[str]) -> dict[bytes, str]:
    key = routing_key(checkpoint.hub_id)
    return {derive_label(key, stream_id(name), 0): name for name in scope}


def _label_of(witness: Witness) -> bytes:
    return Msg.decode(witness.msg).label


def _later(
    held: Snapshot, since: RecorderCheckpoint, events: tuple[RecordRef | None, ...]
) -> RecorderCheckpoint | None:
    """The latest checkpoint, if request and result are below it."""
    names = sorted({event.stream for event in events if event is not None})
    latest = held.latest(names)
    if latest is None or latest.created_at < since.created_at:
        return None
    for event in events:
        end = latest.end(event.stream) if event is not None else None
        if event is None or end is None or end.last_seq < event.seq:
            return None
    return latest


def _recorded(
    held: Snapshot, event: RecordRef | None, later: RecorderCheckpoint | None
) -> RecordedMessage | None:
    if event is None:
        return None
    rows = [stream for stream in held.streams() if stream.name == event.stream]
    row = next((row for row in rows if row.hub_id == held.hub_id), None)
    if row is None or row.position < event.seq:
        raise Refusal(
            ErrorCode.RESULT_NOT_READY,
            f"{event.stream} {event.seq} is not indexed yet; ask again in a moment",
        )
    (pair,) = held.pairs([row.place(event.seq)])
    end = later.end(event.stream) if later else None
    return RecordedMessage(
        msg=pair.msg,
        receipt=pair.receipt,
        body_key=pair.body_key or b"",
        inclusion=InclusionProof.build(held.nodes(row), event.seq, end.last_seq) if end else None,
    )
