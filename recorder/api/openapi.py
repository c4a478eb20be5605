"""The OpenAPI document of the query service (Query API 7, 10.2)."""

from __future__ import annotations

from functools import cache
from typing import Any, Final, NamedTuple

from flask import Blueprint, Response

from recorder.api.answer import answer
from recorder.api.openapi_schemas import SCHEMAS
from recorder.api.query import DEFAULT_LIMIT, PREFIXES
from recorder.service.refusal import ErrorCode
from veen.version import VERSION

bp = Blueprint("openapi", __name__)

_JSON: Final = "application/json"
_BYTES: Final = "application/octet-stream"
_SECURED: Final[list[dict[str, list[str]]]] = [{"bearer": []}, {"signature": []}]


class Operation(NamedTuple):
    """One route; ``answers`` are the statuses with the schema of each, ``errors`` the codes."""

    method: str
    path: str
    summary: str
    answers: tuple[tuple[int, str], ...]
    errors: tuple[ErrorCode, ...]
    parameters: tuple[tuple[str, int], ...] = ()


_COMMON: Final = (ErrorCode.UNAUTHORIZED, ErrorCode.INTERNAL_ERROR)
_READ: Final = (*_COMMON, ErrorCode.QUERY_NOT_FOUND)
_COMPLETED: Final = (*_READ, ErrorCode.RESULT_NOT_READY, ErrorCode.EXECUTION_FAILED)
OPERATIONS: Final = (
    Operation(
        "post", "/submit", "Record a query and run it; rows at once when it is fast",
        ((200, "Result"), (202, "Accepted")),
        (
            *_COMMON, ErrorCode.INVALID_JSON, ErrorCode.INVALID_QUERY_DESCRIPTOR,
            ErrorCode.UNSUPPORTED_VERSION, ErrorCode.FORBIDDEN_SCOPE,
            ErrorCode.DUPLICATE_QUERY_ID, ErrorCode.EXECUTION_FAILED,
        ),
    ),
    Operation("get", "/status/{result_id}", "How far a query has come", ((200, "Status"),), _READ),
    Operation(
        "get", "/result/{result_id}", "Rows of a completed query, by page", ((200, "Result"),),
        (*_COMPLETED, ErrorCode.INVALID_QUERY_DESCRIPTOR),
        (("offset", 0), ("limit", DEFAULT_LIMIT)),
    ),
    Operation(
        "get", "/descriptor/{query_id}", "A query as it was recorded, and where",
        ((200, "Recorded"),), (*_READ, ErrorCode.RESULT_NOT_READY),
    ),
    Operation(
        "get", "/proof/{result_id}", "The evidence package of a result: one file, checked offline",
        ((200, _BYTES),), _COMPLETED,
    ),
)  # fmt: skip


@bp.get("/openapi.json")
def openapi() -> Response:
    return answer(document())


@cache
def document() -> dict[str, Any]:
    paths: dict[str, Any] = {
        prefix + one.path: {one.method: _operation(one, prefix)}
        for prefix in PREFIXES
        for one in OPERATIONS
    }
    for path, summary in (
        ("/healthz", "Whether a worker reads the service's file"),
        ("/readyz", "Whether a query could be answered"),
    ):
        paths[path] = {"get": {"summary": summary, "responses": {"200": {"description": "Yes"}}}}
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "VEEN query service",
            "version": VERSION,
            "description": "QueryDescriptor and ResultDigest of version 1, under /api/query and "
            "/api/v1/query alike. Times are ISO-8601 in UTC with three decimals; answers are "
            "canonical JSON. The time filter goes by hub_commit_time.",
        },
        "paths": paths,
        "components": {"schemas": SCHEMAS, "securitySchemes": _schemes()},
    }


def _operation(one: Operation, prefix: str) -> dict[str, Any]:
    found: dict[str, Any] = {
        "operationId": f"{one.path.split('/')[1]}{'_v1' if 'v1' in prefix else ''}",
        "summary": one.summary,
        "security": _SECURED,
        "parameters": _parameters(one),
        "responses": _responses(one),
    }
    if one.method == "post":
        found["requestBody"] = {"required": True, "content": _content("QueryDescriptor")}
    return found


def _parameters(one: Operation) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = [
        {"name": name, "in": "query", "schema": {"type": "integer", "default": default}}
        for name, default in one.parameters
    ]
    if "{" in one.path:
        name = one.path.partition("{")[2].rstrip("}")
        found.append({"name": name, "in": "path", "required": True, "schema": {"type": "string"}})
    return found


def _responses(one: Operation) -> dict[str, Any]:
    found = {
        str(status): {"description": "Done", "content": _content(schema)}
        for status, schema in one.answers
    }
    for status in sorted({code.status for code in one.errors}):
        codes = ", ".join(code.code for code in one.errors if code.status == status)
        found[str(status)] = {"description": codes, "content": _content("Error")}
    return found


def _content(schema: str) -> dict[str, Any]:
    if schema == _BYTES:
        return {_BYTES: {}}
    return {_JSON: {"schema": {"$ref": f"#/components/schemas/{schema}"}}}


def _schemes() -> dict[str, Any]:
    return {
        "bearer": {"type": "http", "scheme": "bearer"},
        "signature": {
            "type": "apiKey",
            "in": "header",
            "name": "Signature",
            "description": "HTTP Message Signature (RFC 9421) by a principal's key; each is taken "
            "once.",
        },
    }
