"""Proof packages made of a log in memory, as a query service would make them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from recorder.query.descriptor import Descriptor
from recorder.query.digest import row_hash
from recorder.query.execute import digest_of, run, searched, span_of
from recorder.query.package import (
    Package,
    PackageAnchor,
    PackageTrust,
    RecordedMessage,
    RowHashes,
    ShownWitness,
)
from support.recorder.recorded_log import KEYS
from veen.events import RecordEvent
from veen.proofs import InclusionProof
from veen.wire import canonical_json
from veen.wire.body import AnyItem
from veen.wire.canonical_json import json_to_cbor

EXECUTED_AT = 1_700_009_000_123
RECORDER = bytes.fromhex(next(iter(KEYS)))


def trust_of(log: Any, *recorders: bytes) -> PackageTrust:
    """The hub of the log, and the client that records queries unless others are named."""
    named = frozenset(recorders or (RECORDER,))
    return PackageTrust(hub_id=log.hub.hub_id, recorder_ids=named, identity=log.hub)


def _time_of(times: Sequence[int], seq: int) -> int:
    return times[seq - 1]


def result_of(log: Any, descriptor: Descriptor) -> tuple[Any, Any]:
    """Outcome and digest of a query over the log, up to its checkpoint."""
    spans = {}
    for stream in descriptor.scope:
        times = log.times(stream)
        spans[stream] = span_of(descriptor.filter, len(times), partial(_time_of, times))
    outcome = run(descriptor, log.within(spans), log.checkpoint.log_root)
    digest = digest_of(
        descriptor, outcome, result_id="r-1", executed_at_ms=EXECUTED_AT,
        checkpoint=log.checkpoint,
        searched=searched(descriptor, log.checkpoint, spans, outcome.unread),
    )  # fmt: skip
    return outcome, digest


def package_of(log: Any, descriptor: Descriptor, **changes: Any) -> Package:
    """A whole package; ``hashes=True`` leaves out the rows, ``records=False`` the records."""
    outcome, digest = result_of(log, descriptor)
    hashes = RowHashes(tuple(row_hash(canonical_json.encode(row)) for row in outcome.rows))
    request, result, later = None, None, None
    if changes.pop("records", True):
        request, result, later = _records(log, descriptor.encode(), digest.encode())
    values: dict[str, Any] = {
        "descriptor": descriptor,
        "digest": digest,
        "rows": hashes if changes.pop("hashes", False) else outcome.rows,
        "witnesses": tuple(
            ShownWitness(sampled.index, sampled.entry.stream, log.witness(sampled.entry))
            for sampled in outcome.sampled
        ),
        "hub": log.hub,
        "hub_signature": log.signature,
        "checkpoint": log.checkpoint,
        "later_checkpoint": later,
        "request": request,
        "result": result,
        "anchors": (PackageAnchor("ledger", b"a reference"),),
    }
    return Package(**values | changes)


def _records(
    log: Any, asked: bytes, answered: bytes
) -> tuple[RecordedMessage, RecordedMessage, Any]:
    entries = [
        log.append("record/query/requests", 1_700_009_000, event("query.submitted", asked)),
        log.append("record/query/results", 1_700_009_001, event("query.result", answered)),
    ]
    later = log.make_checkpoint(1_700_009_002)
    return (*(_recorded(log, entry, later) for entry in entries), later)


def event(kind: str, text: bytes, principal_id: bytes = RECORDER) -> RecordEvent:
    return RecordEvent(
        subject_id="query service",
        principal_id=principal_id,
        event_type=kind,
        event_time=EXECUTED_AT,
        origin="here",
        payload=AnyItem(json_to_cbor(text)),
    )


def _recorded(log: Any, entry: Any, later: Any) -> RecordedMessage:
    raw, receipt, body_key = log.pairs[entry.stream, entry.seq]
    size = later.end(entry.stream).last_seq
    proof = InclusionProof.build(log.nodes[entry.stream], entry.seq, size)
    return RecordedMessage(msg=raw, receipt=receipt, body_key=body_key, inclusion=proof)
