"""The objects of the Query API as JSON Schema, for the OpenAPI document."""

from __future__ import annotations

from typing import Any, Final

from recorder.service.query_state import State
from recorder.service.refusal import ErrorCode


def _object(required: list[str], **properties: Any) -> dict[str, Any]:
    return {"type": "object", "required": required, "properties": properties}


def _list(of: dict[str, Any]) -> dict[str, Any]:
    return {"type": "array", "items": of}


def _refer(name: str) -> dict[str, Any]:
    return {"$ref": f"#/components/schemas/{name}"}


_TEXT: Final[dict[str, Any]] = {"type": "string"}
_NUMBER: Final[dict[str, Any]] = {"type": "integer", "minimum": 0}
_OR_NULL: Final[dict[str, Any]] = {"type": ["string", "null"]}
_TIME: Final[dict[str, Any]] = {"type": ["string", "null"], "format": "date-time"}
_HASH: Final[dict[str, Any]] = {"type": "string", "pattern": "^[0-9a-f]{64}$"}
_VERSION: Final[dict[str, Any]] = {"type": "integer", "const": 1}

SCHEMAS: Final[dict[str, Any]] = {
    "Error": _object(
        ["error_code", "message"],
        error_code={"type": "string", "enum": [one.code for one in ErrorCode]},
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
        status={"type": "string", "enum": [one.value for one in State]},
        error_code=_OR_NULL, message=_OR_NULL,
    ),
    "Recorded": _object(
        ["descriptor", "record_event"],
        descriptor=_refer("QueryDescriptor"), record_event=_refer("RecordEvent"),
    ),
}  # fmt: skip
