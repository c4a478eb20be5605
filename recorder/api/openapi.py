"""The OpenAPI document of the query service and its JSON Schemas (Query API 7, 10.2)."""

from __future__ import annotations

from functools import cache
from typing import Any, Final, NamedTuple

from flask import Blueprint, Response

from recorder.api.context import answer
from recorder.api.query import DEFAULT_LIMIT, PREFIXES
from recorder.service.database import QueryState
from recorder.service.errors import ErrorCode
from veen.version import VERSION

bp = Blueprint("openapi", __name__)

_TEXT: Final[dict[str, Any]] = {"type": "string"}
_NUMBER: Final[dict[str, Any]] = {"type": "integer", "minimum": 0}
_OR_NULL: Final[dict[str, Any]] = {"type": ["string", "null"]}
_TIME: Final[dict[str, Any]] = {"type": ["string", "null"], "format": "date-time"}
_HASH: Final[dict[str, Any]] = {"type": "string", "pattern": "^[0-9a-f]{64}$"}
_VERSION: Final[dict[str, Any]] = {"type": "integer", "const": 1}
_JSON: Final = "application/json"
_BYTES: Final = "application/octet-stream"
_SECURED: Final[list[dict[str, list[str]]]] = [{"bearer": []}, {"signature": []}]
_COMMON: Final = (ErrorCode.UNAUTHORIZED, ErrorCode.INTERNAL_ERROR)
_READ: Final = (*_COMMON, ErrorCode.QUERY_NOT_FOUND)
_COMPLETED: Final = (*_READ, ErrorCode.RESULT_NOT_READY, ErrorCode.EXECUTION_FAILED)


def _object(required: list[str], **properties: Any) -> dict[str, Any]:
    return {"type": "object", "required": required, "properties": properties}


def _list(of: dict[str, Any]) -> dict[str, Any]:
    return {"type": "array", "items": of}


def _refer(name: str) -> dict[str, Any]:
    return {"$ref": f"#/components/schemas/{name}"}


SCHEMAS: Final[dict[str, Any]] = {
    "Error": _object(
        ["error_code", "message"],
        error_code={"type": "string", "enum": [error.code for error in ErrorCode]},
        message=_TEXT,
    ),
    "Evidence": _object(
        ["mode"],
        mode={"type": "string", "enum": ["none", "spot", "full"]},
        sample_rate={"type": ["number", "null"], "exclusiveMinimum": 0, "maximum": 1},
    ),
    "QueryDescriptor": _object(
        ["scope", "filter", "projection", "evidence"],
        query_id={"type": "string", "pattern": "^[A-Za-z0-9._:-]{1,128}$"},
        version=_VERSION,
        scope=_list(_TEXT) | {"minItems": 1},
        filter=_object(
            [],
            subject_id=_OR_NULL,
            event_type={"type": ["array", "null"], "items": _TEXT},
            origin=_OR_NULL,
            principal_id=_OR_NULL,
            time={**_object([], **{"from": _TIME, "to": _TIME}), "type": ["object", "null"]},
        ),
        projection=_list(_TEXT) | {"minItems": 1},
        aggregate=_object(["metrics"], group_by=_list(_TEXT), metrics=_list(_TEXT)),
        evidence=_refer("Evidence"),
        meta={"type": ["object", "null"]},
    ),
    "RecordEvent": _object(
        ["stream", "seq", "hub_id", "receipt_id"],
        stream=_TEXT, seq=_NUMBER, hub_id=_HASH, receipt_id=_TEXT,
    ),
    "Searched": _object(
        ["stream", "from_seq", "to_seq", "mmr_root", "unread"],
        stream=_TEXT, from_seq=_NUMBER, to_seq=_NUMBER, mmr_root=_HASH, unread=_NUMBER,
    ),
    "ResultDigest": _object(
        ["query_id", "result_id", "version", "row_count", "rows_hash", "evidence_hash"],
        query_id=_TEXT, result_id=_TEXT, version=_VERSION, descriptor_hash=_HASH,
        row_count=_NUMBER, event_count=_NUMBER, evidence_policy=_refer("Evidence"),
        rows_hash=_HASH, rows_chain=_HASH, evidence_hash=_HASH, executed_at=_TEXT, hub_id=_HASH,
        profile_id=_HASH,
        checkpoint=_object(
            ["checkpoint_id", "log_root", "created_at"],
            checkpoint_id=_HASH, log_root=_HASH, created_at=_TEXT,
        ),
        searched=_list(_refer("Searched")),
    ),
    "Result": _object(
        ["faults", "page", "record_event", "result_digest", "rows"],
        faults=_list(
            _object(
                ["fault", "stream", "count", "first_seq"],
                fault=_TEXT, stream=_TEXT, count=_NUMBER, first_seq=_NUMBER,
            )
        ),
        page=_object(
            ["offset", "limit", "total", "has_more"],
            offset=_NUMBER, limit=_NUMBER, total=_NUMBER, has_more={"type": "boolean"},
        ),
        record_event=_refer("RecordEvent"),
        result_digest=_refer("ResultDigest"),
        rows=_list({"type": "object"}),
    ),
    "Accepted": _object(
        ["query_id", "result_id", "status"], query_id=_TEXT, result_id=_TEXT, status=_TEXT
    ),
    "Status": _object(
        ["query_id", "result_id", "status", "error_code", "message"],
        query_id=_TEXT, result_id=_TEXT,
        status={"type": "string", "enum": [state.value for state in QueryState]},
        error_code=_OR_NULL, message=_OR_NULL,
    ),
    "Recorded": _object(
        ["descriptor", "record_event"],
        descriptor=_refer("QueryDescriptor"), record_event=_refer("RecordEvent"),
    ),
}  # fmt: skip


class Operation(NamedTuple):
    """A route; ``answers`` are the statuses with the schema of each, ``errors`` the codes."""

    method: str
    path: str
    summary: str
    answers: tuple[tuple[int, str], ...]
    errors: tuple[ErrorCode, ...]
    parameters: tuple[tuple[str, int], ...] = ()


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
        "get", "/proof/{result_id}", "The proof package of a result: one file, verified offline",
        ((200, _BYTES),), _COMPLETED,
    ),
)  # fmt: skip


@bp.get("/openapi.json")
def openapi() -> Response:
    return answer(document())


@cache
def document() -> dict[str, Any]:
    paths: dict[str, Any] = {
        prefix + operation.path: {operation.method: _operation(operation, prefix)}
        for prefix in PREFIXES
        for operation in OPERATIONS
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


def _operation(operation: Operation, prefix: str) -> dict[str, Any]:
    document: dict[str, Any] = {
        "operationId": f"{operation.path.split('/')[1]}{'_v1' if 'v1' in prefix else ''}",
        "summary": operation.summary,
        "security": _SECURED,
        "parameters": _parameters(operation),
        "responses": _responses(operation),
    }
    if operation.method == "post":
        document["requestBody"] = {"required": True, "content": _content("QueryDescriptor")}
    return document


def _parameters(operation: Operation) -> list[dict[str, Any]]:
    parameters: list[dict[str, Any]] = [
        {"name": name, "in": "query", "schema": {"type": "integer", "default": default}}
        for name, default in operation.parameters
    ]
    if "{" in operation.path:
        name = operation.path.partition("{")[2].rstrip("}")
        parameters.append(
            {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
        )
    return parameters


def _responses(operation: Operation) -> dict[str, Any]:
    responses = {
        str(status): {"description": "Done", "content": _content(schema)}
        for status, schema in operation.answers
    }
    for status in sorted({code.status for code in operation.errors}):
        codes = ", ".join(code.code for code in operation.errors if code.status == status)
        responses[str(status)] = {"description": codes, "content": _content("Error")}
    return responses


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
