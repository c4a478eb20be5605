"""What the service sends: canonical JSON, so that what was hashed is what is read."""

from __future__ import annotations

from typing import Any

from flask import Response, g

from recorder.service.refusal import Refusal
from veen import canonical_json

_JSON = "application/json"


def answer(document: dict[str, Any], status: int = 200) -> Response:
    return Response(canonical_json.encode(document), status, content_type=_JSON)


def answer_rows(document: dict[str, Any], rows: list[bytes]) -> Response:
    """A document with its rows as they lie on disk; they come last, as "rows" sorts last."""
    head = canonical_json.encode(document)[:-1]
    return Response(head + b',"rows":[' + b",".join(rows) + b"]}", 200, content_type=_JSON)


def refuse(refusal: Refusal) -> Response:
    g.outcome = refusal.code.code
    document = {"error_code": refusal.code.code, "message": refusal.message}
    response = answer(document, refusal.status)
    if refusal.retry_after is not None:
        response.headers["Retry-After"] = str(refusal.retry_after)
    if refusal.status == 401:
        challenge = 'Bearer realm="veen query", Signature realm="veen query"'
        response.headers["WWW-Authenticate"] = challenge
    return response
