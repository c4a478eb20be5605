"""The application context of the query service's views, and the responses they send.

Responses are canonical JSON: the bytes that were hashed are the bytes that are sent.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, cast

from flask import Flask, Response, current_app, g
from prometheus_client import CollectorRegistry

from recorder.api.auth import QueryCredentials, TakenSignatures
from recorder.checkpoints.store import HubIdentityFile
from recorder.index.tables import IndexHome
from recorder.query.descriptor import JsonLimits
from recorder.service.database import Database, Results
from recorder.service.errors import Refusal
from recorder.service.packages import Proofs
from recorder.service.recording import Audits
from recorder.service.requests import Principals, ServiceStreams, Submissions, Viewing, Waits
from recorder.service.supervisor import QueryHttpMetrics, ServiceHome, WakeSocket, http_metrics
from recorder.settings import RecorderSettings
from veen.system.environment import Runtime
from veen.wire import canonical_json

_JSON = "application/json"
_KEY: Final = "query"


def answer(document: dict[str, Any], status: int = 200) -> Response:
    return Response(canonical_json.encode(document), status, content_type=_JSON)


def answer_rows(document: dict[str, Any], rows: list[bytes]) -> Response:
    """Append rows as they are on disk; "rows" sorts last in canonical JSON."""
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


@dataclass(frozen=True, slots=True)
class QueryContext:
    """The objects that views of the query service use, created once for an application."""

    settings: RecorderSettings
    results: Results
    audits: Audits
    principals: Principals
    credentials: QueryCredentials
    submissions: Submissions
    viewing: Viewing
    proofs: Proofs
    registry: CollectorRegistry
    metrics: QueryHttpMetrics
    wake: Callable[[], None]
    index: IndexHome
    follower: Path


def install_context(app: Flask, settings: RecorderSettings, waits: Waits) -> None:
    home = ServiceHome(settings.query.results)
    home.create()
    database = Database(home.database)
    results, wake_socket, registry = Results(database), WakeSocket(home), CollectorRegistry()
    principals = Principals(settings.query.principals)
    runtime = Runtime(clock=lambda: int(time.time()), random=os.urandom, sleep=time.sleep)
    index = IndexHome(settings.index)
    app.config["MAX_CONTENT_LENGTH"] = settings.query.max_descriptor_bytes
    app.extensions[_KEY] = QueryContext(
        settings=settings,
        results=results,
        audits=Audits(database),
        principals=principals,
        credentials=QueryCredentials(principals, TakenSignatures(database)),
        submissions=Submissions(
            results,
            limits=JsonLimits(max_bytes=settings.query.max_descriptor_bytes),
            waits=waits,
            streams=ServiceStreams(settings, index).names,
            wake=wake_socket.notify,
            runtime=runtime,
            monotonic=time.monotonic,
        ),
        viewing=Viewing(results, home.rows, settings.query.max_page, index),
        proofs=Proofs(settings, index, HubIdentityFile(home.hub_identity)),
        registry=registry,
        metrics=http_metrics(registry),
        wake=wake_socket.notify,
        index=index,
        follower=home.follower,
    )


def query_context() -> QueryContext:
    """That of the application at hand."""
    return cast("QueryContext", current_app.extensions[_KEY])
