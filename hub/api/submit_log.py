"""A line of JSON for each message taken, one for all that a request had refused (OBS0.1, OBS0.2).

Refusing costs the sender nothing, so it must not cost a line for each message either.
"""

from __future__ import annotations

import json
import logging
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, Final

from hub.api.intake import Taken, Taking
from hub.metrics import EdgeMetrics
from veen import cbor
from veen.errors import Code, Rejected

_STREAM_SEQ_AT: Final = 36  # a receipt begins with its head, ver and a bstr32
_log = logging.getLogger("hub.submit")


def record(taking: Taking, metrics: EdgeMetrics, request_id: str) -> None:
    metrics.verify_latency.observe(taking.verify_ms)
    metrics.commit_latency.observe(taking.commit_ms)
    codes = Counter(_code(one) for one in taking.taken)
    for code, count in codes.items():
        if code is None:
            metrics.submit_ok.inc(count)
        else:
            metrics.submit_err.labels(code.value).inc(count)
    metrics.rate_limited.inc(codes[Code.RATE])
    if _log.isEnabledFor(logging.INFO):
        _log.info("%s", "\n".join(_lines(taking, request_id)))


def _code(one: Taken) -> Code | None:
    if isinstance(one.outcome, bytes):
        return None
    return one.outcome.failure.code if isinstance(one.outcome, Rejected) else Code.UNAVAILABLE


def _lines(taking: Taking, request_id: str) -> Iterator[str]:
    """A line for each message that was taken, written without ado, and one for all the others."""
    common = (
        f'{{"request_id": "{request_id}", "verify_ms": {taking.verify_ms / len(taking.taken):.3f}, '
        f'"commit_ms": {taking.commit_ms:.3f}, '
    )
    refused = []
    for one in taking.taken:
        if isinstance(one.outcome, bytes) and one.verified is not None:
            verified, seq = one.verified, cbor.uint(one.outcome, _STREAM_SEQ_AT)[0]
            yield (
                f'{common}"bytes_in": {one.size}, "bytes_out": {len(one.outcome)}, '
                f'"label": "{verified.label.hex()}", "stream_seq": {seq}, '
                f'"client_id_prefix": "{verified.client_id[:4].hex()}", '
                f'"leaf_hash_prefix": "{verified.leaf_hash[:4].hex()}"}}'
            )
        else:
            refused.append(one)
    if refused:
        yield json.dumps(_refused(refused, taking, request_id))


def _refused(refused: Sequence[Taken], taking: Taking, request_id: str) -> dict[str, Any]:
    """How many messages were refused and why; what the first of them was, as far as is known."""
    first = refused[0]
    codes = Counter(code.value for one in refused if (code := _code(one)) is not None)
    line: dict[str, Any] = {
        "request_id": request_id,
        "bytes_in": sum(one.size for one in refused),
        "verify_ms": round(taking.verify_ms / len(taking.taken), 3),
        "commit_ms": round(taking.commit_ms, 3),
    }
    if first.verified is not None:
        line["label"] = first.verified.label.hex()
        line["client_id_prefix"] = first.verified.client_id[:4].hex()
        line["leaf_hash_prefix"] = first.verified.leaf_hash[:4].hex()
    code = _code(first)
    line["code"] = code.value if code else None
    line["refused"] = dict(sorted(codes.items()))
    line["bytes_out"] = 0
    return line
