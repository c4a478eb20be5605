"""submit and submit_batch: messages in, receipts out (spec 10.4.1)."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Final

from flask import Blueprint, Response, g

from hub.api.edge import SERVER_VERSION, Edge, edge
from hub.api.errors import refusal
from hub.api.intake import Taken, Taking
from hub.api.negotiation import (
    Body,
    Format,
    TooLarge,
    answer,
    answer_bytes,
    answer_format,
    bounded_body,
    read_body,
    request_format,
)
from hub.api.refused import Refused
from hub.api.submit_log import record
from hub.storage.reader import LogReader, Missing
from veen import cbor
from veen.envelope import (
    BatchRequest,
    BatchResponse,
    BatchResult,
    SubmitRequest,
    SubmitResponse,
    encode_receipt,
    encode_receipts,
)
from veen.errors import Code, Failure, Malformed, Rejected
from veen.receipt import Receipt

MAX_BATCH: Final = 4_096
MAX_BATCH_BYTES: Final = 33_554_432
MAX_JSON_BATCH_BYTES: Final = 8_388_608
"""JSON takes several times its size in memory: a large batch is sent in CBOR."""
_VALUES_PER_MESSAGE: Final = 32
_ENVELOPE_BYTES: Final = 1_024

bp = Blueprint("submit", __name__)


@bp.post("/v1/submit")
def submit() -> Response:
    hub = edge()
    wanted = _submit_body(hub).envelope(SubmitRequest)
    (one,) = _take(hub, [wanted.msg]).taken
    if not isinstance(one.outcome, bytes):
        raise one.outcome
    if answer_format() is Format.CBOR:
        return answer_bytes(encode_receipt(one.outcome, SERVER_VERSION))
    receipt = Receipt.decode(one.outcome)
    return answer(SubmitResponse(receipt=receipt, server_version=SERVER_VERSION))


@bp.post("/v1/submit_batch")
def submit_batch() -> Response:
    hub = edge()
    body = bounded_body(_batch_bound(hub), MAX_BATCH * _VALUES_PER_MESSAGE)
    _refuse_too_many(_announced(body))
    wanted = body.envelope(BatchRequest)
    _refuse_too_many(len(wanted.msgs))
    taken = _take(hub, wanted.msgs).taken
    receipts = [one.outcome for one in taken if isinstance(one.outcome, bytes)]
    if len(receipts) == len(taken) and answer_format() is Format.CBOR:
        return answer_bytes(encode_receipts(receipts, SERVER_VERSION))
    results = tuple(_result(one) for one in taken)
    return answer(BatchResponse(results=results, server_version=SERVER_VERSION))


def _take(hub: Edge, messages: Sequence[bytes]) -> Taking:
    start = time.perf_counter()
    hub.metrics.queue_depth.inc(len(messages))
    try:
        taking = hub.intake.take(messages)
    finally:
        hub.metrics.queue_depth.dec(len(messages))
    for one in taking.taken:
        _recall(hub.reader, one)
    record(taking, hub.metrics, g.request_id)
    hub.metrics.end_to_end_latency.observe(1_000 * (time.perf_counter() - start))
    return taking


def _recall(reader: LogReader, one: Taken) -> None:
    """Whoever signs a client_seq again is its client, and may have lost the first answer."""
    refused = one.outcome
    if one.verified is None or not isinstance(refused, Rejected) or refused.stream_seq is None:
        return
    try:
        refused.receipt = reader.entry(one.verified.label, refused.stream_seq).receipt_bytes
    except Missing:
        return


def _batch_bound(hub: Edge) -> int:
    """In JSON at least one message of any size must fit."""
    if request_format() is Format.CBOR:
        return MAX_BATCH_BYTES
    return max(MAX_JSON_BATCH_BYTES, 2 * hub.settings.limits.max_msg_bytes + _ENVELOPE_BYTES)


def _submit_body(hub: Edge) -> Body:
    """A body too large for any message is the message's fault, before it is read (spec 8.1)."""
    found, most = request_format(), hub.settings.limits.max_msg_bytes
    bound = (2 * most if found is Format.JSON else most) + _ENVELOPE_BYTES
    try:
        return read_body(found, bound)
    except TooLarge as error:
        refused = Rejected(Failure.SIZE_PREFILTER, str(error))
        record(Taking([Taken(error.size, None, refused)], 0, 0), hub.metrics, g.request_id)
        raise refused from error


def _result(one: Taken) -> BatchResult:
    if isinstance(one.outcome, bytes):
        return BatchResult(receipt=one.outcome)
    return BatchResult(error=refusal(one.outcome))


def _announced(body: Body) -> int:
    """How many messages a batch says it has, before a list of them is made."""
    if body.format is Format.JSON:
        return 0
    try:
        at = cbor.mapping(body.raw, 0)[1]
        for _ in ("key of ver", "ver", "key of msgs"):
            at = cbor.uint(body.raw, at)[1]
        return cbor.array(body.raw, at)[0]
    except Malformed as error:
        raise Refused(Code.BAD_REQUEST, str(error)) from error


def _refuse_too_many(count: int) -> None:
    if count > MAX_BATCH:
        raise Refused(
            Code.LIMIT,
            f"a batch of {count} messages",
            {"field": "msgs", "max_allowed": MAX_BATCH, "actual": count},
        )
