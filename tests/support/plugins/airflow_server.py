"""Airflow's server alone, for a zone of which nothing else runs: that is enough to be refused."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

import httpx

from zone.directory import DATABASE, ZoneHome, environment

USERS = {"admin": "admin", "operator": "op", "viewer": "viewer", "nobody": ""}
"""And their roles; one has an account and no right at all."""
_TIMEOUT_SEC = 240.0
_ROUTES = """
import json, sys
sys.path.append(sys.argv[1])
from veen_page import LOOK, TAKE, app
def has(route, wanted):
    given = [one.dependency for one in route.dependencies]
    return all(one.dependency in given for one in wanted)
print(json.dumps([
    [one.path, sorted(one.methods), has(one, LOOK), has(one, TAKE)] for one in app.routes
]))
"""


class Route(NamedTuple):
    """A route of the page's application as it is, and what it asks of whoever comes."""

    path: str
    methods: list[str]
    is_guarded: bool
    gives_files: bool


class AirflowServer:
    def __init__(self, home: ZoneHome) -> None:
        self.url = home.zone().airflow.url
        self._home = home
        self._log = home.root / "server.log"
        self._environ = environment(home, home.zone(), os.environ) | {
            # One process asks it little by little; for that SQLite does.
            DATABASE: f"sqlite:///{home.root / 'airflow.db'}",
            f"{DATABASE}_ASYNC": f"sqlite+aiosqlite:///{home.root / 'airflow.db'}",
            "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_USERS": ",".join(
                f"{name}:{role}" for name, role in USERS.items()
            ),
        }
        self._passwords = dict.fromkeys(USERS, "a password of a test")
        home.passwords.write_text(json.dumps(self._passwords))
        self._process: subprocess.Popen[bytes] | None = None
        self._listing: subprocess.Popen[str] | None = None

    def start(self) -> AirflowServer:
        self._run("db", "migrate").wait(_TIMEOUT_SEC)
        self._listing = subprocess.Popen(
            [sys.executable, "-c", _ROUTES, self._environ["AIRFLOW__CORE__PLUGINS_FOLDER"]],
            env=self._environ, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        self._process = self._run("api-server")
        deadline = time.monotonic() + _TIMEOUT_SEC
        while not self._answers():
            assert self._process.poll() is None, self._log.read_text()[-3000:]
            assert time.monotonic() < deadline, self._log.read_text()[-3000:]
            time.sleep(0.2)
        return self

    def stop(self) -> None:
        if self._process is not None:
            self._process.terminate()
            self._process.wait()

    def routes(self) -> list[Route]:
        """All that the page's application answers to."""
        assert self._listing is not None
        output, _ = self._listing.communicate(timeout=_TIMEOUT_SEC)
        return [Route(*load) for load in json.loads(output.splitlines()[-1])]

    def token(self, name: str) -> str:
        given = {"username": name, "password": self._passwords[name]}
        with closing(self.client()) as http:
            reply = http.post("/auth/token", json=given)
        assert reply.status_code == 201, reply.text
        return str(reply.json()["access_token"])

    def client(self, **headers: str) -> httpx.Client:
        return httpx.Client(base_url=self.url, headers=headers, trust_env=False, timeout=60)

    def _run(self, *words: str) -> subprocess.Popen[bytes]:
        program = Path(sys.executable).with_name("airflow")
        with self._log.open("ab") as log:
            return subprocess.Popen(
                [str(program), *words], env=self._environ, stdout=log, stderr=log
            )

    def _answers(self) -> bool:
        try:
            with closing(self.client()) as http:
                return http.get("/api/v2/version").status_code == 200
        except httpx.HTTPError:
            return False
