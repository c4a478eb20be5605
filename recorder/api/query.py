"""The routes of the Query API, under /api/query and /api/v1/query alike (Query API 7, 10.2)."""

from __future__ import annotations

import json
import re
import time
from typing import Any, Final

from flask import Blueprint, Response, request

from recorder.api.audit import authenticate, notes
from recorder.api.context import answer, answer_rows, query_context, refuse
from recorder.service.database import Query, QueryState
from recorder.service.errors import ErrorCode, Refusal, code_of
from recorder.service.requests import RowPage
from veen.digest import h

bp = Blueprint("query", __name__)
PREFIXES: Final = ("/api/query", "/api/v1/query")
DEFAULT_LIMIT: Final = 1000
_NUMBER: Final = re.compile(r"[0-9]{1,15}")


@bp.post("/submit")
def submit() -> Response:
    principal = authenticate("query:submit")
    if request.mimetype != "application/json":
        raise Refusal(ErrorCode.INVALID_JSON, "the content type must be application/json")
    raw = request.get_data()
    notes().parameters = {"request_hash": h(raw).hex()}
    descriptor = query_context().submissions.read(raw)
    notes().resource = f"query:{descriptor.query_id}"
    notes().parameters = {
        "descriptor_hash": descriptor.digest(),
        "scope": list(descriptor.scope),
        "evidence": descriptor.evidence.document(),
    }
    notes().purpose = _purpose(descriptor.meta)
    query = query_context().submissions.submit(principal, descriptor, int(time.time() * 1000))
    notes().parameters["result_id"] = query.result_id
    return _submitted(query)


@bp.get("/status/<result_id>")
def status(result_id: str) -> Response:
    principal = authenticate(_resource("result", result_id))
    query = query_context().viewing.status(principal, result_id)
    return answer(
        {
            **_names(query),
            "status": query.state.value,
            "error_code": query.error_code,
            "message": query.message,
        }
    )


@bp.get("/result/<result_id>")
def result(result_id: str) -> Response:
    principal = authenticate(_resource("result", result_id))
    offset, limit = _number("offset", 0, least=0), _number("limit", DEFAULT_LIMIT, least=1)
    notes().parameters = {"offset": offset, "limit": limit}
    query = query_context().viewing.completed(principal, result_id)
    return _page(query_context().viewing.page(query, offset, limit))


@bp.get("/descriptor/<query_id>")
def descriptor(query_id: str) -> Response:
    principal = authenticate(_resource("query", query_id))
    query = query_context().viewing.descriptor(principal, query_id)
    event = query.request_event
    return answer(
        {
            "descriptor": json.loads(query.descriptor),
            "record_event": event.document() if event else None,
        }
    )


@bp.get("/proof/<result_id>")
def proof(result_id: str) -> Response:
    """Return the proof package: one file, verified offline with the identities of hub and
    recorder."""
    principal = authenticate(_resource("result", result_id))
    query = query_context().viewing.completed(principal, result_id)
    package = query_context().proofs.package(query, query_context().viewing.rows(query))
    _note_digest(query)
    response = Response(package, content_type="application/octet-stream")
    response.headers["Content-Disposition"] = f'attachment; filename="{result_id}.veenproof"'
    return response


def _submitted(query: Query) -> Response:
    if query.state is QueryState.COMPLETED:
        page = query_context().viewing.page(query, 0, DEFAULT_LIMIT)
        if not page.has_more:
            return _page(page)
    if query.state is QueryState.FAILED:
        message = f"{query.result_id}: {query.message or 'the query failed'}"
        return refuse(Refusal(code_of(query.error_code or "execution_failed"), message))
    return answer({**_names(query), "status": query.state.value}, 202)


def _page(page: RowPage) -> Response:
    query = page.query
    _note_digest(query)
    event = query.result_event
    document: dict[str, Any] = {
        "faults": query_context().viewing.faults(query),
        "page": {
            "offset": page.offset,
            "limit": page.limit,
            "total": page.total,
            "has_more": page.has_more,
        },
        "record_event": event.document() if event else None,
        "result_digest": json.loads(query.digest or b"null"),
    }
    return answer_rows(document, page.rows)


def _note_digest(query: Query) -> None:
    notes().result_digest = h(query.digest or b"").hex()


def _names(query: Query) -> dict[str, Any]:
    return {"query_id": query.query_id, "result_id": query.result_id}


def _number(name: str, default: int, *, least: int) -> int:
    text = request.args.get(name, str(default))
    if not _NUMBER.fullmatch(text) or int(text) < least:
        raise Refusal(
            ErrorCode.INVALID_QUERY_DESCRIPTOR, f"{name} must be a whole number from {least} on"
        )
    return int(text)


def _resource(kind: str, name: str) -> str:
    """The requested resource as the audit shows it: the caller's text, shortened and escaped."""
    return f"{kind}:{ascii(name[:128])[1:-1]}"


def _purpose(meta: dict[str, Any] | None) -> str | None:
    reason = (meta or {}).get("reason")
    return reason[:256] if isinstance(reason, str) else None
