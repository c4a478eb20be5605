"""The page "Recorder & Bridge": what stands in the zone's own files, for people.

Nothing is changed by it, and no other program is started. Whoever asks needs a session of Airflow;
what comes from a log, a medium or a service is text, never markup.
"""

from __future__ import annotations

import os
import time
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Annotated, Any, Final

from airflow.api_fastapi.app import get_auth_manager
from airflow.api_fastapi.common.db.common import SessionDep
from airflow.api_fastapi.core_api.security import GetUserDep
from fastapi import FastAPI, HTTPException, Query, Request, Response, status
from fastapi.responses import FileResponse, HTMLResponse
from veen_page_access import LOOK, TAKE, may_see, refuse_unless_may_take, seen_dags
from veen_page_bridge import is_place as is_quarantine_place
from veen_page_bridge import quarantine, receipt, runs_of
from veen_page_checkpoints import door_of
from veen_page_heads import heads
from veen_page_made import (
    PAGE,
    OfRun,
    alarms,
    by_id,
    file_of,
    is_place,
    of_run,
    page,
    picture_of,
    where,
)
from veen_page_overview import overview
from veen_page_render import PREFIX, Frame, render
from veen_page_runs import ended_ms
from veen_page_services import look
from veen_page_streams import kept, streams
from veen_page_waiting import waiting
from veen_page_zone import Place, opened

from recorder.artefact import KINDS, Artefact
from veen.errors import VeenError

_HERE: Final = Path(__file__).parent
POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'self'"
)
PICTURE_POLICY: Final = "default-src 'none'; style-src 'unsafe-inline'; sandbox"

app = FastAPI(docs_url=None, redoc_url=None, openapi_url=None, dependencies=LOOK)
Place_ = Annotated[str | None, Query(max_length=300)]


@app.middleware("http")
async def guarded(request: Request, answer: Callable[[Request], Awaitable[Response]]) -> Response:
    """Nothing from elsewhere, nothing kept, shown in no frame but Airflow's."""
    response = await answer(request)
    response.headers.setdefault("Content-Security-Policy", POLICY)
    response.headers["X-Content-Type-Options"] = "nosniff"
    response.headers["Referrer-Policy"] = "same-origin"
    response.headers["Cache-Control"] = "no-store"
    return response


@app.exception_handler(HTTPException)
async def refused(request: Request, error: HTTPException) -> HTMLResponse:
    """A refusal that a person can read, with the way in where there is one."""
    return _refusal(request, error.status_code, str(error.detail))


@app.exception_handler(VeenError)
async def untold(request: Request, error: VeenError) -> HTMLResponse:
    return _refusal(request, status.HTTP_503_SERVICE_UNAVAILABLE, str(error))


@app.get("/")
def index(request: Request, user: GetUserDep, session: SessionDep) -> HTMLResponse:
    found = overview(
        opened(os.environ),
        now=int(time.time()),
        may_read=may_see(user),
        open_questions=lambda: waiting(session, seen_dags(user)),
        look=look,
        heads=_heads,
        random=os.urandom,
    )
    return _shown("veen_page_overview.html", request, zone=found.zone, of=found)


@app.get("/page.css")
def style() -> FileResponse:
    return FileResponse(_HERE / "veen_page.css", media_type="text/css; charset=utf-8")


@app.get("/page.js")
def script() -> FileResponse:
    return FileResponse(_HERE / "veen_page.js", media_type="text/javascript; charset=utf-8")


@app.get("/streams")
def all_streams(request: Request, user: GetUserDep, after: Place_ = None) -> HTMLResponse:
    place = opened(os.environ)
    found = streams(
        place,
        kept(door_of(place, os.urandom)),
        now=int(time.time()),
        may_read=may_see(user),
        live=_heads(place),
        after=after or "",
    )
    return _shown("veen_page_streams.html", request, zone=place.zone, streams=found)


@app.get("/quarantine")
def all_quarantined(request: Request, user: GetUserDep, before: Place_ = None) -> HTMLResponse:
    place = opened(os.environ)
    airlock = place.airlock()
    if before is not None and not is_quarantine_place(before):
        raise HTTPException(400, "before: the place where the page before this one ended is due")
    if airlock is None:
        raise HTTPException(404, "this zone has imported nothing yet")
    found = quarantine(airlock, before)
    made = runs_of(place, found, may_see(user))
    return _shown("veen_page_quarantine.html", request, zone=place.zone, found=found, made=made)


@app.get("/run/{dag_id}/{run_id:path}")
def run(
    request: Request, user: GetUserDep, session: SessionDep, dag_id: str, run_id: str
) -> HTMLResponse:
    """What one run made; a link of its tasks leads here."""
    place, ended = opened(os.environ), ended_ms(session, dag_id, run_id)
    seen = may_see(user)(dag_id)
    found = of_run(place.folder, dag_id, run_id, ended) if seen else OfRun()
    asked = {"dag_id": dag_id, "run_id": run_id, "found": found}
    return _shown("veen_page_run.html", request, zone=place.zone, **asked)


@app.get("/{kind}")
def listed(request: Request, user: GetUserDep, kind: str, before: Place_ = None) -> HTMLResponse:
    place = opened(os.environ)
    if kind not in KINDS:
        raise HTTPException(404, f"there is no list of {kind!r} here")
    if before is not None and not is_place(before):
        raise HTTPException(400, "before: the place where the page before this one ended is due")
    found = page(place.folder, kind, PAGE, may_see(user), before)
    first = alarms(place.folder, may_see(user)) if kind == "alarm" and before is None else None
    asked = {"found": found, "before": before, "first": first}
    return _shown("veen_page_list.html", request, zone=place.zone, **asked)


@app.get("/{kind}/{name}")
def artefact(request: Request, user: GetUserDep, kind: str, name: str) -> HTMLResponse:
    place, found = _artefact(user, kind, name)
    return _shown(
        "veen_page_artefact.html",
        request,
        zone=place.zone,
        one=found,
        where=where(place.folder, found),
        has_file=file_of(place.folder, found) is not None,
        has_picture=picture_of(place.folder, found) is not None,
        receipt=receipt(place, found.id) if kind == "import" else None,
    )


@app.get("/{kind}/{name}/picture")
def picture(user: GetUserDep, kind: str, name: str) -> FileResponse:
    place, found = _artefact(user, kind, name)
    file = picture_of(place.folder, found)
    if file is None:
        raise HTTPException(404, "there is no picture of it")
    headers = {"Content-Security-Policy": PICTURE_POLICY}
    return FileResponse(file, media_type="image/svg+xml", headers=headers)


@app.get("/{kind}/{name}/file", dependencies=TAKE)
def file(user: GetUserDep, kind: str, name: str) -> FileResponse:
    place, found = _artefact(user, kind, name)
    refuse_unless_may_take(user, found.dag_id)
    wanted = file_of(place.folder, found)
    if wanted is None:
        raise HTTPException(404, "it names no file in the zone's folder")
    called = f"{found.kind}-{found.id[:16]}{wanted.suffix}"
    return FileResponse(wanted, media_type="application/octet-stream", filename=called)


def _artefact(user: Any, kind: str, name: str) -> tuple[Place, Artefact]:
    """What may not be seen is not there."""
    place = opened(os.environ)
    found = by_id(place.folder, kind, [name]).get(name) if kind in KINDS else None
    if found is None or not may_see(user)(found.dag_id):
        raise HTTPException(404, f"no {kind} of that name is known here")
    return place, found


def _heads(place: Place) -> Mapping[str, int] | None:
    return heads(place, lambda: int(time.time()), os.urandom)


def _shown(template: str, request: Request, **values: Any) -> HTMLResponse:
    return HTMLResponse(render(template, _frame(request), **values))


def _refusal(request: Request, code: int, told: str) -> HTMLResponse:
    frame = _frame(request)
    login = get_auth_manager().get_url_login(next_url=f"{frame.page}/")
    text = render("veen_page_refused.html", frame, code=code, told=told, login=login)
    return HTMLResponse(text, status_code=code)


def _frame(request: Request) -> Frame:
    """Airflow may stand below a path of its own; the page stands below that."""
    root = str(request.scope.get("root_path", "")).removesuffix(PREFIX)
    return Frame(root=root, now=int(time.time()))
