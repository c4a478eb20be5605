"""The page "Recorder & Bridge", read from the zone's own files, for users of Airflow.

It changes nothing and starts no program. A request needs a session of Airflow, with the rights that
Airflow gives. What comes from a log, a medium or a service is rendered as text, never as markup.
"""

from __future__ import annotations

import os
import time
from collections.abc import Awaitable, Callable, Collection, Mapping
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Final

from airflow.api_fastapi.app import get_auth_manager
from airflow.api_fastapi.auth.managers.models.base_user import BaseUser
from airflow.api_fastapi.auth.managers.models.resource_details import (
    AccessView,
    DagAccessEntity,
    DagDetails,
)
from airflow.api_fastapi.common.db.common import SessionDep
from airflow.api_fastapi.core_api.security import (
    GetUserDep,
    requires_access_dag,
    requires_access_view,
)
from airflow.models.dag import DagModel
from fastapi import Depends, FastAPI, HTTPException, Query, Request, Response, status
from fastapi.responses import FileResponse, HTMLResponse
from veen_page_artefacts import (
    PAGE,
    OfRun,
    alarms,
    by_id,
    ended_ms,
    file_of,
    is_place,
    of_run,
    page,
    picture_of,
    where,
)
from veen_page_bridge import is_place as is_quarantine_place
from veen_page_bridge import quarantine, receipt, runs_of, waiting
from veen_page_log import heads, recorder_services, stored, streams
from veen_page_overview import overview
from veen_page_render import PREFIX, PageFrame, render
from veen_page_services import ZonePlace, look, opened

from veen.errors import VeenError
from zone.artefacts import KINDS, Artefact

LOOK: Final[list[Any]] = [
    Depends(requires_access_view(AccessView.PLUGINS)),
    Depends(requires_access_dag("GET", DagAccessEntity.RUN)),
]
"""Require, for every route, a session with the right to see plugins and runs."""

TAKE: Final[list[Any]] = [Depends(requires_access_dag("POST", DagAccessEntity.RUN))]
"""Require, for files of the zone, the right to start runs, which a viewer does not have."""
_HERE: Final = Path(__file__).parent
POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'self'"
)
PICTURE_POLICY: Final = "default-src 'none'; style-src 'unsafe-inline'; sandbox"


def may_see(user: BaseUser) -> Callable[[str], bool]:
    """A check whether a user may see the runs of a DAG, cached for a page."""
    return cache(lambda dag_id: _is_authorized("GET", dag_id, user))


def refuse_unless_may_take(user: BaseUser, dag_id: str) -> None:
    if not _is_authorized("POST", dag_id, user):
        raise HTTPException(status.HTTP_403_FORBIDDEN, "Forbidden")


def seen_dags(user: BaseUser) -> Collection[str]:
    return get_auth_manager().get_authorized_dag_ids(user=user, method="GET")


def _is_authorized(method: Any, dag_id: str, user: BaseUser) -> bool:
    details = DagDetails(id=dag_id, team_name=DagModel.get_team_name(dag_id))
    return bool(
        get_auth_manager().is_authorized_dag(
            method=method, access_entity=DagAccessEntity.RUN, details=details, user=user
        )
    )


app = FastAPI(docs_url=None, redoc_url=None, openapi_url=None, dependencies=LOOK)
Place_ = Annotated[str | None, Query(max_length=300)]


@app.middleware("http")
async def guarded(request: Request, answer: Callable[[Request], Awaitable[Response]]) -> Response:
    """Security headers: no external content, no caching, no frame except Airflow's."""
    response = await answer(request)
    response.headers.setdefault("Content-Security-Policy", POLICY)
    response.headers["X-Content-Type-Options"] = "nosniff"
    response.headers["Referrer-Policy"] = "same-origin"
    response.headers["Cache-Control"] = "no-store"
    return response


@app.exception_handler(HTTPException)
async def refused(request: Request, error: HTTPException) -> HTMLResponse:
    """A readable error page, with a link to log in if that helps."""
    return _refusal(request, error.status_code, str(error.detail))


@app.exception_handler(VeenError)
async def unreported(request: Request, error: VeenError) -> HTMLResponse:
    return _refusal(request, status.HTTP_503_SERVICE_UNAVAILABLE, str(error))


@app.get("/")
def index(request: Request, user: GetUserDep, session: SessionDep) -> HTMLResponse:
    content = overview(
        opened(os.environ),
        now=int(time.time()),
        may_read=may_see(user),
        open_questions=lambda: waiting(session, seen_dags(user)),
        look=look,
        heads=_heads,
        random=os.urandom,
    )
    return _shown("veen_page_overview.html", request, zone=content.zone, of=content)


@app.get("/page.css")
def style() -> FileResponse:
    return FileResponse(_HERE / "veen_page.css", media_type="text/css; charset=utf-8")


@app.get("/page.js")
def script() -> FileResponse:
    return FileResponse(_HERE / "veen_page.js", media_type="text/javascript; charset=utf-8")


@app.get("/streams")
def all_streams(request: Request, user: GetUserDep, after: Place_ = None) -> HTMLResponse:
    place = opened(os.environ)
    listing = streams(
        place,
        stored(recorder_services(place, os.urandom)),
        now=int(time.time()),
        may_read=may_see(user),
        live=_heads(place),
        after=after or "",
    )
    return _shown("veen_page_streams.html", request, zone=place.zone, streams=listing)


@app.get("/quarantine")
def all_quarantined(request: Request, user: GetUserDep, before: Place_ = None) -> HTMLResponse:
    place = opened(os.environ)
    import_dir = place.import_dir()
    if before is not None and not is_quarantine_place(before):
        raise HTTPException(
            400, "before: expected the position where the page before this one ended"
        )
    if import_dir is None:
        raise HTTPException(404, "this zone has imported nothing yet")
    carriers = quarantine(import_dir, before)
    made = runs_of(place, carriers, may_see(user))
    return _shown(
        "veen_page_quarantine.html", request, zone=place.zone, carriers=carriers, made=made
    )


@app.get("/run/{dag_id}/{run_id:path}")
def run(
    request: Request, user: GetUserDep, session: SessionDep, dag_id: str, run_id: str
) -> HTMLResponse:
    """The artefacts of a run, which its tasks link to."""
    place, ended = opened(os.environ), ended_ms(session, dag_id, run_id)
    seen = may_see(user)(dag_id)
    artefacts = of_run(place.folder, dag_id, run_id, ended) if seen else OfRun()
    asked = {"dag_id": dag_id, "run_id": run_id, "artefacts": artefacts}
    return _shown("veen_page_run.html", request, zone=place.zone, **asked)


@app.get("/{kind}")
def listed(request: Request, user: GetUserDep, kind: str, before: Place_ = None) -> HTMLResponse:
    place = opened(os.environ)
    if kind not in KINDS:
        raise HTTPException(404, f"there is no list of {kind!r} here")
    if before is not None and not is_place(before):
        raise HTTPException(
            400, "before: expected the position where the page before this one ended"
        )
    artefacts = page(place.folder, kind, PAGE, may_see(user), before)
    first = alarms(place.folder, may_see(user)) if kind == "alarm" and before is None else None
    asked = {"artefacts": artefacts, "before": before, "first": first}
    return _shown("veen_page_list.html", request, zone=place.zone, **asked)


@app.get("/{kind}/{name}")
def artefact(request: Request, user: GetUserDep, kind: str, name: str) -> HTMLResponse:
    place, shown = _artefact(user, kind, name)
    return _shown(
        "veen_page_artefact.html",
        request,
        zone=place.zone,
        artefact=shown,
        where=where(place.folder, shown),
        has_file=file_of(place.folder, shown) is not None,
        has_picture=picture_of(place.folder, shown) is not None,
        receipt=receipt(place, shown.id) if kind == "import" else None,
    )


@app.get("/{kind}/{name}/picture")
def picture(user: GetUserDep, kind: str, name: str) -> FileResponse:
    place, shown = _artefact(user, kind, name)
    file = picture_of(place.folder, shown)
    if file is None:
        raise HTTPException(404, "it has no picture")
    headers = {"Content-Security-Policy": PICTURE_POLICY}
    return FileResponse(file, media_type="image/svg+xml", headers=headers)


@app.get("/{kind}/{name}/file", dependencies=TAKE)
def file(user: GetUserDep, kind: str, name: str) -> FileResponse:
    place, shown = _artefact(user, kind, name)
    refuse_unless_may_take(user, shown.dag_id)
    path = file_of(place.folder, shown)
    if path is None:
        raise HTTPException(404, "it names no file in the zone's directory")
    called = f"{shown.kind}-{shown.id[:16]}{path.suffix}"
    return FileResponse(path, media_type="application/octet-stream", filename=called)


def _artefact(user: Any, kind: str, name: str) -> tuple[ZonePlace, Artefact]:
    """The artefact; 404 also if the user may not see it."""
    place = opened(os.environ)
    shown = by_id(place.folder, kind, [name]).get(name) if kind in KINDS else None
    if shown is None or not may_see(user)(shown.dag_id):
        raise HTTPException(404, f"no {kind} of that name is known here")
    return place, shown


def _heads(place: ZonePlace) -> Mapping[str, int] | None:
    return heads(place, lambda: int(time.time()), os.urandom)


def _shown(template: str, request: Request, **values: Any) -> HTMLResponse:
    return HTMLResponse(render(template, _frame(request), **values))


def _refusal(request: Request, code: int, value: str) -> HTMLResponse:
    frame = _frame(request)
    login = get_auth_manager().get_url_login(next_url=f"{frame.page}/")
    text = render("veen_page_refused.html", frame, code=code, detail=value, login=login)
    return HTMLResponse(text, status_code=code)


def _frame(request: Request) -> PageFrame:
    """The path of Airflow's base URL, below which the page is."""
    root = str(request.scope.get("root_path", "")).removesuffix(PREFIX)
    return PageFrame(root=root, now=int(time.time()))
