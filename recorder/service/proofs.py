"""The evidence package of a result, made from what is on disk and in the index."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from recorder.anchor.refs import read_refs
from recorder.checkpoints.home import Home
from recorder.index.home import IndexHome
from recorder.index.snapshot import Snapshot, snapshot
from recorder.query.descriptor import Descriptor
from recorder.query.digest import ResultDigest, row_hash
from recorder.query.evidence import Witness, is_sampled
from recorder.query.package import Anchored, Package, Recorded, RowHashes, Shown
from recorder.query.select import Row
from recorder.service.engine import CHECKPOINT_FILE, WITNESS_FILE, descriptor_of, read_witnesses
from recorder.service.hub_papers import HubPapers
from recorder.service.query_state import Query, RecordRef
from recorder.service.refusal import ErrorCode, Refusal
from recorder.service.rows_file import RowsFile
from recorder.settings import Settings
from veen.inclusion import InclusionProof
from veen.label import label, routing_key
from veen.msg import Msg
from veen.recorder_checkpoint import RecorderCheckpoint
from veen.stream import stream_id

MOST_WITNESS_BYTES: Final = 256 << 20
MOST_WHOLE_ROWS: Final = 100_000
"""A larger result is packed by the hashes of its rows; the rows themselves come by pages."""


class Proofs:
    def __init__(self, settings: Settings, index: IndexHome, papers: HubPapers) -> None:
        self._settings = settings
        self._index = index
        self._papers = papers

    def package(self, query: Query, rows: RowsFile) -> bytes:
        """The package of a completed query; result_not_ready until the index has its digest."""
        checkpoint = RecorderCheckpoint.decode(rows.file(CHECKPOINT_FILE))
        digest = ResultDigest.decode(query.digest or b"")
        descriptor = descriptor_of(query)
        hub, signature = self._papers.read()
        with snapshot(self._index) as held:
            later = _later(held, checkpoint, (query.request_event, query.result_event))
            return Package(
                descriptor=descriptor,
                digest=digest,
                rows=_rows(rows),
                witnesses=_shown(descriptor, digest, checkpoint, rows),
                hub=hub,
                hub_signature=signature,
                checkpoint=checkpoint,
                later_checkpoint=later,
                request=_recorded(held, query.request_event, later),
                result=_recorded(held, query.result_event, later),
                anchors=self._anchors(checkpoint),
            ).encode()

    def _anchors(self, checkpoint: RecorderCheckpoint) -> tuple[Anchored, ...]:
        """Those that are beside the checkpoint on this host."""
        folder = Home(self._settings.checkpoint.path).anchors_of(checkpoint.checkpoint_id)
        return tuple(Anchored(one.kind, one.anchor_ref) for one in read_refs(folder))


def _rows(rows: RowsFile) -> tuple[Row, ...] | RowHashes:
    if rows.count() <= MOST_WHOLE_ROWS:
        return tuple(rows.all())
    return RowHashes(tuple(row_hash(one) for one in rows.lines()))


def _shown(
    descriptor: Descriptor, digest: ResultDigest, checkpoint: RecorderCheckpoint, rows: RowsFile
) -> tuple[Shown, ...]:
    """The witnesses with what they are of: which events were drawn is computed, not kept."""
    streams = _labels(checkpoint, descriptor.scope)
    drawn = (
        index
        for index in range(digest.event_count)
        if is_sampled(descriptor.evidence, descriptor.query_id, checkpoint.log_root, index)
    )
    witnesses = read_witnesses(_bounded(rows.file(WITNESS_FILE, MOST_WITNESS_BYTES + 1)))
    return tuple(
        Shown(index, streams[_label_of(one)], one)
        for index, one in zip(drawn, witnesses, strict=True)
    )


def _bounded(raw: bytes) -> bytes:
    if len(raw) > MOST_WITNESS_BYTES:
        raise Refusal(
            ErrorCode.EXECUTION_FAILED,
            f"the package would hold more than {MOST_WITNESS_BYTES} bytes of witnesses; narrow the "
            "query, ask for evidence spot, or replay it over an index",
        )
    return raw


def _labels(checkpoint: RecorderCheckpoint, scope: Iterable[str]) -> dict[bytes, str]:
    key = routing_key(checkpoint.hub_id)
    return {label(key, stream_id(name), 0): name for name in scope}


def _label_of(witness: Witness) -> bytes:
    return Msg.decode(witness.msg).label


def _later(
    held: Snapshot, since: RecorderCheckpoint, events: tuple[RecordRef | None, ...]
) -> RecorderCheckpoint | None:
    """The latest checkpoint, if request and result stand below it."""
    names = sorted({one.stream for one in events if one is not None})
    found = held.latest(names)
    if found is None or found.created_at < since.created_at:
        return None
    for one in events:
        end = found.end(one.stream) if one is not None else None
        if one is None or end is None or end.last_seq < one.seq:
            return None
    return found


def _recorded(
    held: Snapshot, event: RecordRef | None, later: RecorderCheckpoint | None
) -> Recorded | None:
    if event is None:
        return None
    rows = [one for one in held.streams() if one.name == event.stream]
    row = next((one for one in rows if one.hub_id == held.hub_id), None)
    if row is None or row.position < event.seq:
        raise Refusal(
            ErrorCode.RESULT_NOT_READY,
            f"{event.stream} {event.seq} is not indexed yet; ask again in a moment",
        )
    (pair,) = held.pairs([row.place(event.seq)])
    end = later.end(event.stream) if later else None
    return Recorded(
        msg=pair.msg,
        receipt=pair.receipt,
        body_key=pair.body_key or b"",
        inclusion=InclusionProof.build(held.nodes(row), event.seq, end.last_seq) if end else None,
    )
