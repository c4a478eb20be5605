"""Audit entries for query requests; without its entry no request is answered (query audit 9.3).

Requests for unknown paths and unknown queries are counted too, since they may be probing. Only
health, metrics and the static page leave no entry.
"""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass, field
from typing import Any

from flask import Flask, Response, g, request

from recorder.api.context import query_context, refuse
from recorder.service.errors import ErrorCode, Refusal
from recorder.service.recording import AccessAttempt, Counted
from recorder.settings import QueryPrincipal
from veen.errors import VeenError

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class Notes:
    """What is known so far of the current request, for its audit entry."""

    principal: QueryPrincipal | None = None
    resource: str = ""
    parameters: dict[str, Any] = field(default_factory=dict)
    purpose: str | None = None
    result_digest: str | None = None


def install(app: Flask) -> None:
    app.before_request(_begin)
    app.after_request(_end)


def notes() -> Notes:
    notes: Notes = g.notes
    return notes


def authenticate(resource: str) -> QueryPrincipal:
    """Return the principal of the current request, and note it with the requested resource."""
    notes().resource = resource
    notes().principal = query_context().credentials.principal()
    principal = notes().principal
    assert principal is not None  # noqa: S101 - for the type checker
    return principal


def _begin() -> None:
    g.notes = Notes()
    g.outcome = "ok"
    g.begun = time.monotonic()


def _end(response: Response) -> Response:
    query_context().metrics.requests.labels(_route(), str(response.status_code)).inc()
    is_attempt = notes().resource or request.url_rule is None
    if not is_attempt and response.status_code != ErrorCode.UNAUTHORIZED.status:
        return response
    try:
        _store_entry(response.status_code)
    except VeenError:
        _log.exception("an audit entry could not be stored; the request is refused")
        query_context().metrics.audit_failures.inc()
        return refuse(
            Refusal(ErrorCode.INTERNAL_ERROR, "the request could not be audited", status=500)
        )
    return response


def _store_entry(status: int) -> None:
    noted, now_ms = notes(), int(time.time() * 1000)
    source = request.remote_addr or "local"
    if noted.principal is None:
        query_context().audits.add_counted(
            Counted(source=source, route=_route(), outcome=g.outcome, status=status, time_ms=now_ms)
        )
        return
    query_context().audits.add(
        AccessAttempt(
            requester=noted.principal.name,
            subject_id=noted.principal.subject_id,
            identity=query_context().principals.identity(noted.principal),
            route=_route(),
            resource=noted.resource,
            parameters=noted.parameters,
            purpose=noted.purpose,
            outcome=g.outcome,
            status=status,
            source=source,
            result_digest=noted.result_digest,
            time_ms=now_ms,
        )
    )
    query_context().wake()


def _route() -> str:
    return str(request.url_rule.rule) if request.url_rule else "unknown"
