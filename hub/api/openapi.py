"""The OpenAPI document of the hub, generated from its route table and the wire classes.

``ROUTES`` lists every route: what it takes, what it returns and whether it needs credentials. The
JSON Schema of a wire class is derived from the annotations of its fields.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import cache
from types import NoneType
from typing import Annotated, Any, Final, get_args, get_origin, get_type_hints

from flask import Blueprint, Response, jsonify

from veen.captoken import CapToken
from veen.errors import Code
from veen.msg import Msg
from veen.receipt import Receipt
from veen.version import VERSION
from veen.wire import api
from veen.wire.api import ErrorEnvelope
from veen.wire.cbor import UINT_MAX
from veen.wire.objects import WireArray, WireMap, WireObject
from veen.wire.schema import Size

# A raw item is named for what it holds.
_RAW_ITEMS: Final = {"msg": Msg, "msgs": Msg, "receipt": Receipt}
_UINT: Final = {"type": "integer", "minimum": 0, "maximum": UINT_MAX}
_PLAIN: Final[dict[Any, dict[str, Any]]] = {
    int: _UINT,
    str: {"type": "string"},
    bool: {"type": "boolean"},
    bytes: {"type": "string", "pattern": "^([0-9a-f]{2})*$"},
}
_MARKED: Final[dict[str, dict[str, Any]]] = {
    "version": {"const": 1},
    "detail": {"type": "object"},
}
JSON: Final = "application/json"
TEXT: Final = "text/plain"
bp = Blueprint("openapi", __name__)


class Schemas:
    """The component schemas of a document, one for each class that is referred to."""

    def __init__(self) -> None:
        self.components: dict[str, dict[str, Any]] = {}

    def refer(self, cls: type[WireObject]) -> dict[str, Any]:
        if cls.__name__ not in self.components:
            self.components[cls.__name__] = {}
            self.components[cls.__name__] = self._schema(cls)
        return {"$ref": f"#/components/schemas/{cls.__name__}"}

    def field(self, name: str, annotation: Any) -> dict[str, Any]:
        origin, arguments = get_origin(annotation), get_args(annotation)
        if NoneType in arguments:
            return self.field(name, arguments[0])
        if origin is Annotated:
            return self._marked(name, arguments[1])
        if origin is tuple:
            return {"type": "array", "items": self.field(name, arguments[0])}
        return dict(_PLAIN[annotation]) if annotation in _PLAIN else self.refer(annotation)

    def _marked(self, name: str, mark: Any) -> dict[str, Any]:
        if isinstance(mark, Size):
            return {"type": "string", "pattern": f"^[0-9a-f]{{{2 * mark.exact}}}$"}
        if mark.name in _MARKED:
            return dict(_MARKED[mark.name])
        return self.refer(_RAW_ITEMS[name])

    def _schema(self, cls: Any) -> dict[str, Any]:
        schema = self._array(cls) if issubclass(cls, WireArray) else self._map(cls)
        lines = (cls.__doc__ or "").splitlines()
        if lines and not lines[0].startswith(f"{cls.__name__}("):
            schema["description"] = lines[0]
        return schema

    def _map(self, cls: type[WireMap]) -> dict[str, Any]:
        hints = get_type_hints(cls, include_extras=True)
        names = field_names(cls)
        return {
            "type": "object",
            "properties": {
                name: {**self.field(name, hints[name]), "x-cbor-key": key}
                for key, name in enumerate(names, 1)
            },
            "required": [name for name in names if NoneType not in get_args(hints[name])],
            "additionalProperties": False,
        }

    def _array(self, cls: type[WireArray]) -> dict[str, Any]:
        hints = get_type_hints(cls, include_extras=True)
        names = field_names(cls)
        required = [name for name in names if NoneType not in get_args(hints[name])]
        shortest = names.index(required[-1]) + 1
        return {
            "type": "array",
            "prefixItems": [
                self._element(name, hints[name], inner=index < shortest)
                for index, name in enumerate(names)
            ],
            "items": False,
            "minItems": shortest,
        }

    def _element(self, name: str, annotation: Any, *, inner: bool) -> dict[str, Any]:
        """An absent element is null, but at the end it is left out."""
        schema = {**self.field(name, annotation), "title": name}
        if inner and NoneType in get_args(annotation):
            return {"anyOf": [schema, {"type": "null"}], "title": name}
        return schema


def query_parameters(schemas: Schemas, cls: type[WireMap]) -> list[dict[str, Any]]:
    hints = get_type_hints(cls, include_extras=True)
    return [
        {
            "name": name,
            "in": "query",
            "required": NoneType not in get_args(hints[name]),
            "schema": schemas.field(name, hints[name]),
        }
        for name in field_names(cls)
    ]


def field_names(cls: Any) -> list[str]:
    return [field.name for field in fields(cls)]


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiRoute:
    method: str
    path: str
    summary: str
    request: type[WireObject] | None = None
    query: type[WireMap] | None = None
    response: type[WireObject] | None = None
    media_type: str = JSON
    secured: bool = False

    @property
    def name(self) -> str:
        return f"{self.method}_{self.path.strip('/').replace('/', '_').replace('.', '_')}"


def _post(
    path: str,
    summary: str,
    request: type[WireObject],
    response: type[WireObject],
    *,
    secured: bool = True,
) -> ApiRoute:
    return ApiRoute(
        method="post",
        path=path,
        summary=summary,
        request=request,
        response=response,
        secured=secured,
    )


def _get(
    path: str,
    summary: str,
    response: type[WireObject] | None,
    query: type[WireMap] | None = None,
    *,
    media_type: str = JSON,
    secured: bool = False,
) -> ApiRoute:
    return ApiRoute(
        method="get",
        path=path,
        summary=summary,
        query=query,
        response=response,
        media_type=media_type,
        secured=secured,
    )


ROUTES: Final = (
    _post(
        "/v1/submit", "Admit one message; its receipt, or why not",
        api.SubmitRequest, api.SubmitResponse, secured=False,
    ),
    _post(
        "/v1/submit_batch", "Admit messages in order, each by itself",
        api.BatchRequest, api.BatchResponse, secured=False,
    ),
    _post(
        "/v1/stream", "Read a page of a label",
        api.StreamRequest, api.StreamResponse,
    ),
    _post(
        "/v1/receipt", "The receipt of a place",
        api.ReceiptRequest, api.ReceiptResponse,
    ),
    _post(
        "/v1/proof", "That a place was the last of its label",
        api.ProofRequest, api.ProofResponse,
    ),
    _post(
        "/v1/checkpoint", "The checkpoint at a size; made for a managing principal",
        api.CheckpointRequest, api.CheckpointResponse,
    ),
    _post(
        "/tooling/authorize", "Make a capability known; a second time changes nothing",
        CapToken, api.AuthorizeResponse, secured=False,
    ),
    _get(
        "/tooling/capability", "What the hub knows of a capability",
        api.CapabilityResponse, api.CapabilityQuery,
    ),
    _get("/tooling/status", "Identity, time, limits and state", api.StatusResponse),
    _get("/tooling/streams", "Streams by name", api.StreamsResponse, secured=True),
    _post(
        "/tooling/streams", "Register a stream; for a managing principal",
        api.RegisterRequest, api.StreamsResponse,
    ),
    _post(
        "/tooling/inclusion", "Inclusion proof: a leaf is part of a later size",
        api.InclusionRequest, api.InclusionResponse,
    ),
    _post(
        "/tooling/consistency", "Consistency proof: a size extends an earlier one (empty range)",
        api.ConsistencyRequest, api.RangeProofResponse,
    ),
    _post(
        "/tooling/range_proof", "Range proof: a run of leaves is part of a later size",
        api.RangeProofRequest, api.RangeProofResponse,
    ),
    _get(
        "/tooling/checkpoint_latest", "The last checkpoint of a label",
        api.CheckpointResponse, api.CheckpointLatestQuery, secured=True,
    ),
    _get(
        "/tooling/checkpoint_range", "Checkpoints of a label in order",
        api.CheckpointRangeResponse, api.CheckpointRangeQuery, secured=True,
    ),
    _post(
        "/tooling/recorder_checkpoint",
        "One signed document over the ends of all product streams; for a managing principal",
        api.RecorderCheckpointRequest, api.RecorderCheckpointResponse,
    ),
    _get(
        "/tooling/recorder_checkpoint_latest", "The last recorder checkpoint",
        api.RecorderCheckpointResponse, secured=True,
    ),
    _get(
        "/tooling/recorder_checkpoints", "Recorder checkpoints in order",
        api.RecorderCheckpointsResponse, api.RecorderCheckpointsQuery, secured=True,
    ),
    _post(
        "/tooling/locate", "Places of a leaf, or the first place not before a time",
        api.LocateRequest, api.LocateResponse,
    ),
    _post(
        "/tooling/report_equivocation", "Two receipts of this hub that contradict each other",
        api.EquivocationReport, api.EquivocationResponse, secured=False,
    ),
    _get("/healthz", "That a worker reads the log", api.HealthResponse),
    _get("/readyz", "That the hub takes messages", api.ReadyResponse),
    _get(
        "/metrics", "Prometheus text; for this host or a managing principal",
        None, media_type=TEXT, secured=True,
    ),
    _get("/openapi.json", "This document", None),
)  # fmt: skip


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


def _operation(route: ApiRoute, schemas: Schemas) -> dict[str, Any]:
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
        operation["requestBody"] = {"required": True, "content": _media_types(schema)}
    if route.query is not None:
        operation["parameters"] = query_parameters(schemas, route.query)
    if route.secured:
        operation["security"] = [{"bearer": []}, {"signature": []}]
    return operation


def _content(route: ApiRoute, schemas: Schemas) -> dict[str, Any]:
    if route.response is None:
        return {route.media_type: {}}
    return _media_types(schemas.refer(route.response))


def _error() -> dict[str, Any]:
    codes = ", ".join(f"{code.value} {code.http_status}" for code in Code)
    schema = {"$ref": "#/components/schemas/ErrorEnvelope"}
    return {"description": f"Refused: {codes}", "content": _media_types(schema)}


def _media_types(schema: dict[str, Any]) -> dict[str, Any]:
    return {"application/json": {"schema": schema}, "application/cbor": {"schema": schema}}
