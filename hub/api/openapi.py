"""The OpenAPI document of the hub, drawn from the wire classes its routes take and give."""

from __future__ import annotations

from functools import cache
from typing import Any

from flask import Blueprint, Response, jsonify

from hub.api.openapi_schema import Schemas, query_parameters
from hub.api.routes import ROUTES, Route
from veen.envelope import ErrorEnvelope
from veen.errors import Code
from veen.version import VERSION

bp = Blueprint("openapi", __name__)


@bp.get("/openapi.json")
def openapi() -> Response:
    return jsonify(document())


@cache
def document() -> dict[str, Any]:
    schemas = Schemas()
    schemas.refer(ErrorEnvelope)
    paths: dict[str, dict[str, Any]] = {}
    for route in ROUTES:
        paths.setdefault(route.path, {})[route.method] = _operation(route, schemas)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "VEEN hub",
            "version": VERSION,
            "description": "Bytes are lowercase hex in JSON. In CBOR, objects are maps whose keys "
            "are the x-cbor-key of each property, and bytes are byte strings.",
        },
        "paths": paths,
        "components": {
            "schemas": schemas.components,
            "responses": {"Error": _error()},
            "securitySchemes": {
                "bearer": {"type": "http", "scheme": "bearer"},
                "signature": {
                    "type": "apiKey",
                    "in": "header",
                    "name": "Signature",
                    "description": "HTTP Message Signature (RFC 9421) by a principal's key.",
                },
            },
        },
    }


def _operation(route: Route, schemas: Schemas) -> dict[str, Any]:
    operation: dict[str, Any] = {
        "operationId": route.name,
        "summary": route.summary,
        "responses": {
            "200": {"description": "Done", "content": _content(route, schemas)},
            "default": {"$ref": "#/components/responses/Error"},
        },
    }
    if route.request is not None:
        schema = schemas.refer(route.request)
        operation["requestBody"] = {"required": True, "content": _both(schema)}
    if route.query is not None:
        operation["parameters"] = query_parameters(schemas, route.query)
    if route.secured:
        operation["security"] = [{"bearer": []}, {"signature": []}]
    return operation


def _content(route: Route, schemas: Schemas) -> dict[str, Any]:
    if route.response is None:
        return {route.media_type: {}}
    return _both(schemas.refer(route.response))


def _error() -> dict[str, Any]:
    codes = ", ".join(f"{code.value} {code.http_status}" for code in Code)
    schema = {"$ref": "#/components/schemas/ErrorEnvelope"}
    return {"description": f"Refused: {codes}", "content": _both(schema)}


def _both(schema: dict[str, Any]) -> dict[str, Any]:
    return {"application/json": {"schema": schema}, "application/cbor": {"schema": schema}}
