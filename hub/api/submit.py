"""submit and submit_batch: messages in, receipts out (spec 10.4.1).

For each accepted message a line of JSON is logged, and one line for all that a request had refused
(OBS0.1, OBS0.2): refusals are free for the sender, so they must not fill the log.
"""

from __future__ import annotations

import json
import logging
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

from flask import Blueprint, Response, g

from hub.api.content import (
    BodyTooLarge,
    ContentFormat,
    RequestBody,
    RequestRefused,
    answer,
    answer_format,
    bounded_body,
    read_body,
    request_format,
)
from hub.api.context import SERVER_VERSION, HubContext, SubmitBatch, SubmitResult, hub_context
from hub.api.errors import refusal
from hub.metrics import HttpMetrics
from hub.storage.reader import LogReader, Missing
from veen.errors import Code, Failure, Malformed, Rejected
from veen.limits import Limits
from veen.receipt import Receipt
from veen.wire import cbor
from veen.wire.api import (
    BatchRequest,
    BatchResponse,
    BatchResult,
    SubmitRequest,
    SubmitResponse,
    encode_receipt,
    encode_receipts,
)

_STREAM_SEQ_AT: Final = 36  # a receipt begins with its head, ver and a bstr32
_log = logging.getLogger("hub.submit")
MAX_BATCH: Final = 4_096
MAX_BATCH_BYTES: Final = 33_554_432
MAX_JSON_BATCH_BYTES: Final = 8_388_608
"""JSON takes several times its size in memory: a large batch is sent in CBOR."""
_VALUES_PER_MESSAGE: Final = 32
_ENVELOPE_BYTES: Final = 1_024
bp = Blueprint("submit", __name__)


def record(batch: SubmitBatch, metrics: HttpMetrics, request_id: str) -> None:
    metrics.verify_latency.observe(batch.verify_ms)
    metrics.commit_latency.observe(batch.commit_ms)
    refused = [result for result in batch.results if not isinstance(result.outcome, bytes)]
    metrics.submit_ok.inc(len(batch.results) - len(refused))
    codes = Counter(_code(result) for result in refused)
    for code, count in codes.items():
        metrics.submit_err.labels(code.value).inc(count)
    metrics.rate_limited.inc(codes[Code.RATE])
    if batch.results and _log.isEnabledFor(logging.INFO):
        _log.info("%s", "\n".join(_lines(batch, request_id)))


def _code(refused: SubmitResult) -> Code:
    outcome = refused.outcome
    return outcome.failure.code if isinstance(outcome, Rejected) else Code.UNAVAILABLE


def _lines(batch: SubmitBatch, request_id: str) -> Iterator[str]:
    """A line for each accepted message, formatted by hand for speed, and one for the refused."""
    common = (
        f'{{"request_id": "{request_id}", "verify_ms": {batch.verify_ms / len(batch.results):.3f}, '
        f'"commit_ms": {batch.commit_ms:.3f}, '
    )
    refused = []
    for result in batch.results:
        if isinstance(result.outcome, bytes) and result.verified is not None:
            verified, seq = result.verified, cbor.uint(result.outcome, _STREAM_SEQ_AT)[0]
            yield (
                f'{common}"bytes_in": {result.size}, "bytes_out": {len(result.outcome)}, '
                f'"label": "{verified.label.hex()}", "stream_seq": {seq}, '
                f'"client_id_prefix": "{verified.client_id[:4].hex()}", '
                f'"leaf_hash_prefix": "{verified.leaf_hash[:4].hex()}"}}'
            )
        else:
            refused.append(result)
    if refused:
        yield json.dumps(_refused(refused, batch, request_id))


def _refused(
    refused: Sequence[SubmitResult], batch: SubmitBatch, request_id: str
) -> dict[str, Any]:
    """The refused messages counted by code, and what is known of the first of them."""
    first = refused[0]
    codes = Counter(_code(result).value for result in refused)
    line: dict[str, Any] = {
        "request_id": request_id,
        "bytes_in": sum(result.size for result in refused),
        "verify_ms": round(batch.verify_ms / len(batch.results), 3),
        "commit_ms": round(batch.commit_ms, 3),
    }
    if first.verified is not None:
        line["label"] = first.verified.label.hex()
        line["client_id_prefix"] = first.verified.client_id[:4].hex()
        line["leaf_hash_prefix"] = first.verified.leaf_hash[:4].hex()
    line["code"] = _code(first).value
    line["refused"] = dict(sorted(codes.items()))
    line["bytes_out"] = 0
    return line


@bp.post("/v1/submit")
def submit() -> Response:
    hub = hub_context()
    request = _submit_body(hub).envelope(SubmitRequest)
    (result,) = _submit(hub, [request.msg]).results
    if not isinstance(result.outcome, bytes):
        raise result.outcome
    if answer_format() is ContentFormat.CBOR:
        encoded = encode_receipt(result.outcome, SERVER_VERSION)
        return Response(encoded, mimetype=ContentFormat.CBOR.value)
    receipt = Receipt.decode(result.outcome)
    return answer(SubmitResponse(receipt=receipt, server_version=SERVER_VERSION))


@bp.post("/v1/submit_batch")
def submit_batch() -> Response:
    hub = hub_context()
    is_cbor = request_format() is ContentFormat.CBOR
    bound = MAX_BATCH_BYTES if is_cbor else json_batch_bound(hub.settings.limits)
    body = bounded_body(bound, MAX_BATCH * _VALUES_PER_MESSAGE)
    messages = batch_messages(body)
    results = _submit(hub, messages).results
    if answer_format() is ContentFormat.CBOR:
        encoded = encode_results(results, g.request_id)
        return Response(encoded, mimetype=ContentFormat.CBOR.value)
    return answer(_batch_response(results, g.request_id))


def batch_messages(body: RequestBody) -> Sequence[bytes]:
    """The messages of a batch, or RequestRefused."""
    if body.format is ContentFormat.CBOR:
        _verify_announced(body)
    request = body.envelope(BatchRequest)
    if len(request.msgs) > MAX_BATCH:
        raise _too_many(len(request.msgs))
    return request.msgs


def encode_results(results: Sequence[SubmitResult], request_id: str) -> bytes:
    """The response to a batch in CBOR."""
    receipts = [result.outcome for result in results if isinstance(result.outcome, bytes)]
    if len(receipts) == len(results):
        return encode_receipts(receipts, SERVER_VERSION)
    return _batch_response(results, request_id).encode()


def _batch_response(results: Sequence[SubmitResult], request_id: str) -> BatchResponse:
    answers = tuple(_result(result, request_id) for result in results)
    return BatchResponse(results=answers, server_version=SERVER_VERSION)


def _submit(hub: HubContext, messages: Sequence[bytes]) -> SubmitBatch:
    start = time.perf_counter()
    hub.metrics.queue_depth.inc(len(messages))
    try:
        batch = hub.admission.take(messages)
    finally:
        hub.metrics.queue_depth.dec(len(messages))
    attach_first_receipts(hub.reader, batch.results)
    record(batch, hub.metrics, g.request_id)
    hub.metrics.end_to_end_latency.observe(1_000 * (time.perf_counter() - start))
    return batch


def attach_first_receipts(reader: LogReader, results: Iterable[SubmitResult]) -> None:
    """Add the first receipt to the refusal of a duplicate: its client may have lost the response.

    This keeps submits idempotent. The signature shows that it is the same client.
    """
    for result in results:
        refused = result.outcome
        if isinstance(refused, Rejected) and has_first_receipt(result):
            _attach_first_receipt(reader, result, refused)


def has_first_receipt(result: SubmitResult) -> bool:
    """Whether a message was refused because it, or its successor, is in the log."""
    refused = result.outcome
    known = isinstance(refused, Rejected) and refused.stream_seq is not None
    return known and result.verified is not None


def _attach_first_receipt(reader: LogReader, result: SubmitResult, refused: Rejected) -> None:
    if result.verified is None or refused.stream_seq is None:
        return
    try:
        refused.receipt = reader.entry(result.verified.label, refused.stream_seq).receipt_bytes
    except Missing:
        return


def submit_bound(limits: Limits, format_: ContentFormat) -> int:
    """The size limit of the body of a submit."""
    factor = 2 if format_ is ContentFormat.JSON else 1
    return factor * limits.max_msg_bytes + _ENVELOPE_BYTES


def json_batch_bound(limits: Limits) -> int:
    """The size limit of a batch in JSON: at least one message of any size must fit."""
    return max(MAX_JSON_BATCH_BYTES, submit_bound(limits, ContentFormat.JSON))


def _submit_body(hub: HubContext) -> RequestBody:
    """The body of a submit; one too large for any message fails the prefilter (spec 8.1)."""
    format_ = request_format()
    try:
        return read_body(format_, submit_bound(hub.settings.limits, format_))
    except BodyTooLarge as error:
        refused = Rejected(Failure.SIZE_PREFILTER, str(error))
        record(
            SubmitBatch([SubmitResult(error.size, None, refused)], 0, 0), hub.metrics, g.request_id
        )
        raise refused from error


def _result(result: SubmitResult, request_id: str) -> BatchResult:
    if isinstance(result.outcome, bytes):
        return BatchResult(receipt=result.outcome)
    return BatchResult(error=refusal(result.outcome, request_id))


def _verify_announced(body: RequestBody) -> None:
    """Check the number of messages in the header of a CBOR batch, before it is decoded."""
    try:
        at = cbor.mapping(body.raw, 0)[1]
        for _ in ("key of ver", "ver", "key of msgs"):
            at = cbor.uint(body.raw, at)[1]
        announced = cbor.array(body.raw, at)[0]
    except Malformed as error:
        raise RequestRefused(Code.BAD_REQUEST, str(error)) from error
    if announced > MAX_BATCH:
        raise _too_many(announced)


def _too_many(count: int) -> RequestRefused:
    return RequestRefused(
        Code.LIMIT,
        f"batch too large: expected at most {MAX_BATCH} messages, got {count}",
        {"field": "msgs", "max_allowed": MAX_BATCH, "actual": count},
    )
