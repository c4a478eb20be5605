"""Who may see the page, asked of a real Airflow: each route, without a session and with too little
right."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import pytest

from support.plugins.airflow_server import AirflowServer, Route
from support.plugins.page_zone import PageZone
from zone.directory import ZoneHome

# Airflow makes its database and starts before the first of them.
pytestmark = pytest.mark.timeout(900)
FILLED = {"kind": "reconcile", "name": "r", "dag_id": "veen_reconcile", "run_id": "r1"}
"""For each name in a path of a route, something that is there."""
HOSTILE = "<script>alert(1)</script>"


@pytest.fixture(scope="module")
def server(
    make_page_zone_in: Callable[..., PageZone], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[AirflowServer]:
    zone = make_page_zone_in(tmp_path_factory.mktemp("served"), "offline")
    zone.quarantine(zone.bundles(1), "ab" * 32, HOSTILE)
    report = zone.folder / "reports" / "reconcile" / "r"
    report.mkdir(parents=True)
    (report / "report.json").write_text('{"whole": true}')
    (report / "report.svg").write_text('<svg xmlns="http://www.w3.org/2000/svg"/>')
    zone.keep(
        kind="reconcile",
        id="r",
        dag_id="veen_reconcile",
        run_id="r1",
        path=str(report / "report.json"),
        summary={"what": HOSTILE},
    )
    airflow_server = AirflowServer(ZoneHome(zone.folder))
    try:
        yield airflow_server.start()
    finally:
        airflow_server.stop()


@pytest.fixture(scope="module")
def routes(server: AirflowServer) -> list[Route]:
    return server.routes()


@pytest.fixture(scope="module")
def pages(routes: list[Route]) -> list[str]:
    return [path(route) for route in routes if not route.gives_files]


@pytest.fixture(scope="module")
def files(routes: list[Route]) -> list[str]:
    return [path(route) for route in routes if route.gives_files]


def path(route: Route) -> str:
    """One that a person could ask for; a route with a name that is not filled fails all."""
    return "/veen" + re.sub(r"{(\w+)(:path)?}", lambda item: FILLED[item[1]], route.path)


@pytest.fixture(scope="module")
def tokens(server: AirflowServer) -> dict[str, str]:
    return {name: server.token(name) for name in ("admin", "operator", "viewer", "nobody")}


def get(server: AirflowServer, path: str, cookie: str | None) -> Any:
    with closing(server.client()) as http:
        if cookie is not None:
            http.cookies.set("_token", cookie)
        return http.get(path)


def statuses(server: AirflowServer, paths: list[str], cookie: str | None) -> dict[str, int]:
    return {path: get(server, path, cookie).status_code for path in paths}


def test_every_route_is_tried_here(pages: list[str], files: list[str]) -> None:
    assert set(pages) >= {"/veen/", "/veen/page.css", "/veen/quarantine", "/veen/streams"}
    assert files == ["/veen/reconcile/r/file"]


def test_every_route_reads_alone_and_asks_who_comes(routes: list[Route]) -> None:
    assert [route for route in routes if not route.is_guarded or route.methods != ["GET"]] == []


def test_refuses_without_a_session(
    server: AirflowServer, pages: list[str], files: list[str]
) -> None:
    for page in [*pages, *files]:
        reply = get(server, page, None)
        assert reply.status_code == 401, page
        assert "Log in to Airflow" in reply.text
        assert "reconcile" not in reply.text.replace("/veen/", "")


def test_refuses_a_session_that_is_none(
    server: AirflowServer, pages: list[str], files: list[str]
) -> None:
    forged = "eyJhbGciOiJub25lIn0.eyJzdWIiOiJhZG1pbiJ9."
    result = statuses(server, [*pages, *files], forged)
    assert {item: code for item, code in result.items() if code not in (401, 403)} == {}


def test_refuses_an_account_without_rights(
    server: AirflowServer, tokens: dict[str, str], pages: list[str], files: list[str]
) -> None:
    for page in [*pages, *files]:
        reply = get(server, page, tokens["nobody"])
        assert reply.status_code == 403, page
        assert HOSTILE not in reply.text


def test_refuses_files_to_a_viewer(
    server: AirflowServer, tokens: dict[str, str], files: list[str]
) -> None:
    assert set(statuses(server, files, tokens["viewer"]).values()) == {403}


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE"])
def test_nothing_can_be_changed_here(
    server: AirflowServer, tokens: dict[str, str], method: str
) -> None:
    with closing(server.client(Authorization=f"Bearer {tokens['admin']}")) as http:
        assert http.request(method, "/veen/reconcile/r").status_code == 405


@pytest.mark.parametrize("name", ["viewer", "operator", "admin"])
def test_shows_its_pages_to_whoever_may_see_runs(
    server: AirflowServer, tokens: dict[str, str], pages: list[str], name: str
) -> None:
    assert statuses(server, pages, tokens[name]) == dict.fromkeys(pages, 200)


@pytest.mark.parametrize("name", ["operator", "admin"])
def test_gives_files_to_whoever_may_start_runs(
    server: AirflowServer, tokens: dict[str, str], files: list[str], name: str
) -> None:
    for file in files:
        reply = get(server, file, tokens[name])
        assert (reply.status_code, reply.text) == (200, '{"whole": true}')
        assert reply.headers["content-disposition"].startswith("attachment")


def test_takes_a_token_as_well_as_a_session(server: AirflowServer, tokens: dict[str, str]) -> None:
    with closing(server.client(Authorization=f"Bearer {tokens['viewer']}")) as http:
        assert http.get("/veen/").status_code == 200


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/veen/nothing", 404),
        ("/veen/reconcile/nothing", 404),
        ("/veen/reconcile/nothing/file", 404),
        ("/veen/reconcile/nothing/picture", 404),
        ("/veen/reconcile?before=../../etc", 400),
        ("/veen/quarantine?before=%3Cscript%3E", 400),
        ("/veen/..%2f..%2fveen.toml", 404),
        ("/veen/%3Cscript%3Ealert(1)%3C%2Fscript%3E", 404),
    ],
)
def test_refuses_what_is_not_there(
    server: AirflowServer, tokens: dict[str, str], path: str, status: int
) -> None:
    reply = get(server, path, tokens["admin"])
    assert reply.status_code == status
    assert "<script>alert" not in reply.text


def test_a_page_takes_nothing_from_elsewhere(server: AirflowServer, tokens: dict[str, str]) -> None:
    reply = get(server, "/veen/reconcile/r", tokens["viewer"])
    policy = reply.headers["content-security-policy"]
    assert policy.startswith("default-src 'none';")
    assert "unsafe" not in policy
    assert "frame-ancestors 'self'" in policy
    assert reply.headers["x-content-type-options"] == "nosniff"
    assert reply.headers["cache-control"] == "no-store"
    assert "http://" not in reply.text
    assert "https://" not in reply.text
    assert HOSTILE not in reply.text
    assert "&lt;script&gt;alert(1)" in reply.text


def test_a_picture_may_run_nothing(server: AirflowServer, tokens: dict[str, str]) -> None:
    reply = get(server, "/veen/reconcile/r/picture", tokens["viewer"])
    assert reply.headers["content-type"] == "image/svg+xml"
    assert "sandbox" in reply.headers["content-security-policy"]
    assert "script-src" not in reply.headers["content-security-policy"]


def test_it_stands_in_the_navigation(server: AirflowServer, tokens: dict[str, str]) -> None:
    with closing(server.client(Authorization=f"Bearer {tokens['viewer']}")) as http:
        (plugin,) = http.get("/api/v2/plugins").json()["plugins"]
        assert http.get("/api/v2/plugins/importErrors").json()["import_errors"] == []
    (view,) = plugin["external_views"]
    assert (view["name"], view["href"], view["destination"]) == (
        "Recorder & Bridge",
        "/veen/",
        "nav",
    )
