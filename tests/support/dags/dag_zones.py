"""A pair of zones for the DAGs: real hubs, one PostgreSQL, and runs of DAGs in processes."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from support.paths import SUPPORT
from zone.artefacts import Artefact, newest
from zone.directory import ZoneHome, environment
from zone.postgres import Postgres, user
from zone.services import answers, authorize

HTTP = "record/app/http"
_RUN = re.compile(r'^\{"dag_id".*\}$', re.MULTILINE)


def veen(*words: str, **more: str) -> dict[str, Any]:
    """The answer of a command that must succeed."""
    done = subprocess.run(
        [sys.executable, "-P", "-m", "cli.main", *words, "--json"],
        env=os.environ | more,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        stdin=subprocess.DEVNULL,
    )
    assert done.returncode == 0, f"{words}\n{done.stdout}\n{done.stderr}"
    document: dict[str, Any] = json.loads(done.stdout)
    return document


@dataclass(frozen=True)
class Run:
    """How a run of a DAG ended, and what its tasks said."""

    dag_id: str
    run_id: str
    state: str
    tasks: dict[str, str]
    tries: dict[str, int]
    killed: list[str]
    log: str


@dataclass(frozen=True)
class Running:
    """Runs that go on; what they say is in a file, so that nobody has to listen."""

    process: subprocess.Popen[bytes]
    log: Path

    def ended(self) -> list[Run]:
        assert self.process.wait(800) == 0, self.log.read_text()[-6000:]
        text, result, start = self.log.read_text(errors="replace"), [], 0
        for item in _RUN.finditer(text):
            result.append(Run(log=text[start : item.start()], **json.loads(item[0])))
            start = item.end()
        return result

    def says(self, requested: str) -> None:
        """Wait until it does."""
        while requested not in self.log.read_text(errors="replace"):
            assert self.process.poll() is None, self.log.read_text()[-6000:]
            time.sleep(0.02)


@dataclass(frozen=True)
class Site:
    """One zone with its hub, and an Airflow home whose database is ``database``."""

    home: ZoneHome
    postgres: Postgres
    database: str

    @property
    def file(self) -> Path:
        return self.home.file

    def configure(self, old: str, new: str) -> None:
        text = self.file.read_text()
        assert old in text
        self.file.write_text(text.replace(old, new, 1))

    def environment(self, **more: str) -> dict[str, str]:
        url = f"postgresql+%s://postgres@/{self.database}?host={self.postgres.socket}"
        ours = os.environ | {
            "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": url % "psycopg2",
            "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN_ASYNC": url % "asyncpg",
            "AIRFLOW__CORE__UNIT_TEST_MODE": "False",
            "AIRFLOW__LOGGING__LOGGING_LEVEL": "INFO",
        }
        return environment(self.home, self.home.zone(), ours | more)

    def start_hub(self) -> None:
        zone = self.home.zone()
        veen("hub", "start", "--data-dir", str(zone.hub_data), "--config", str(self.file))
        authorize(self.home)

    def stop_hub(self) -> None:
        subprocess.run(
            [sys.executable, "-P", "-m", "cli.main", "hub", "stop", "--data-dir",
             str(self.home.zone().hub_data)],
            check=False, capture_output=True, timeout=60,
        )  # fmt: skip

    def emit(self, count: int) -> None:
        line = {"event_type": "http.access", "subject_id": "u:7", "origin": "shop"}
        lines = [json.dumps(line | {"payload": {"n": n}}) + "\n" for n in range(count)]
        file = self.home.root / "events.jsonl"
        file.write_text("".join(lines))
        who = self.home.identity("gateway").root
        veen(
            "recorder", "emit", "--config", str(self.file), "--file", str(file),
            "--client", str(who), "--principal", "gateway",
            "--cap", str(self.home.capability("gateway")),
        )  # fmt: skip

    def begin(self, *runs: Mapping[str, Any], **more: str) -> Running:
        """A process that runs these DAGs, one after another."""
        handle, name = tempfile.mkstemp(dir=self.home.root, prefix="dag-runs-", suffix=".log")
        with os.fdopen(handle, "wb") as log:
            process = subprocess.Popen(
                [sys.executable, "-P", str(SUPPORT / "dags" / "dag_process.py"), json.dumps(runs)],
                env=self.environment(**more),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=self.home.root,
                start_new_session=True,
            )
        return Running(process, Path(name))

    def run(self, *runs: Mapping[str, Any], **more: str) -> list[Run]:
        """How each run ended: its state, those of its tasks, and what they said."""
        return self.begin(*runs, **more).ended()

    def artefacts(self, kind: str) -> tuple[Artefact, ...]:
        return newest(self.home.root, kind, 1000)

    def audits(self) -> list[str]:
        """The digests of the audit reports that the log holds."""
        out = self.home.root / "audits.jsonl"
        out.unlink(missing_ok=True)
        stream = ["--stream", "record/infrastructure/audits", "--from", "1", "--out", str(out)]
        veen("recorder", "replay", "--config", str(self.file), *stream)
        lines: list[dict[str, Any]] = [json.loads(line) for line in out.read_text().splitlines()]
        return [line["payload"]["report"] for line in lines if line["kind"] == "event"]


def start_postgres(folder: Path) -> tuple[Postgres, subprocess.Popen[bytes]]:
    postgres = Postgres(folder)
    postgres.prepare()
    other = user()
    process = subprocess.Popen(
        postgres.command(), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL, cwd=postgres.root, user=other, group=other,
        extra_groups=None if other is None else [],
    )  # fmt: skip
    deadline = time.monotonic() + 60
    while not postgres.is_ready():
        assert process.poll() is None, "PostgreSQL ended"
        assert time.monotonic() < deadline, "PostgreSQL does not answer"
        time.sleep(0.1)
    return postgres, process


def create_database(postgres: Postgres, name: str, template: str) -> None:
    words = ["createdb", "-h", str(postgres.socket), "-U", "postgres", "-T", template, name]
    postgres._run(*words)


@contextmanager
def database(folder: Path) -> Iterator[Postgres]:
    """PostgreSQL with the tables of Airflow, from which the databases of zones are copied."""
    postgres, process = start_postgres(folder / "pg")
    try:
        home = ZoneHome(folder / "any")
        veen("zone", "init", "--directory", str(home.root), "--name", "any", "--role", "alone")
        postgres.create_database()
        subprocess.run(
            [str(Path(sys.executable).with_name("airflow")), "db", "migrate"],
            env=Site(home, postgres, "airflow").environment(),
            check=True, capture_output=True, timeout=280,
        )  # fmt: skip
        yield postgres
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(30)
        postgres.remove_socket_folder()


@contextmanager
def zone_pair(folder: Path, postgres: Postgres, more: str = "") -> Iterator[tuple[Site, Site]]:
    """An online and an offline zone, with their hubs running; ``more`` is told to the first hub."""
    z1, z2 = (
        Site(ZoneHome(folder / item), postgres, f"{folder.name}_{item}") for item in ("z1", "z2")
    )
    veen("zone", "init", "--directory", str(z1.home.root), "--name", "z1", "--role", "online")
    trust = ["--trust", str(z1.home.handover)]
    words = ["--directory", str(z2.home.root), "--name", "z2", "--role", "offline"]
    veen("zone", "init", *words, *trust)
    z1.configure("[recorder]", f"{more}\n[recorder]")
    try:
        for site in (z1, z2):
            site.configure("[dags]", "[dags]\nretry_sec = 1")
            create_database(postgres, site.database, "airflow")
            site.start_hub()
        yield z1, z2
    finally:
        for site in (z1, z2):
            site.stop_hub()


class People:
    """The users of a zone's Airflow at its API server, which runs until the block ends."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._url = site.home.zone().airflow.url
        self._passwords = json.loads(site.home.passwords.read_bytes())
        self._clients: dict[str, httpx.Client] = {}

    @contextmanager
    def served(self) -> Iterator[People]:
        log = self._site.home.root / "api-server.log"
        with log.open("ab") as out:
            process = subprocess.Popen(
                [str(Path(sys.executable).with_name("airflow")), "api-server"],
                env=self._site.environment(), stdin=subprocess.DEVNULL, stdout=out, stderr=out,
                start_new_session=True,
            )  # fmt: skip
        try:
            deadline = time.monotonic() + 200
            while not answers(f"{self._url}/api/v2/version"):
                assert process.poll() is None, log.read_text()[-3000:]
                assert time.monotonic() < deadline, log.read_text()[-3000:]
                time.sleep(0.2)
            yield self
        finally:
            for client in self._clients.values():
                client.close()
            os.killpg(process.pid, signal.SIGTERM)
            process.wait(60)

    def asked(self, task: str, running: Running) -> dict[str, Any]:
        """The question that this task puts; waits until it does."""
        deadline = time.monotonic() + 200
        while time.monotonic() < deadline:
            for question in self._questions():
                if question["task_instance"]["task_id"] == task:
                    return question
            assert running.process.poll() is None, running.log.read_text()[-6000:]
            time.sleep(0.5)
        raise AssertionError(f"{task} asked nothing")

    def says(self, name: str, what: str, question: dict[str, Any]) -> int:
        """The status that the server answers a person with."""
        ti = question["task_instance"]
        run = f"/api/v2/dags/{ti['dag_id']}/dagRuns/{ti['dag_run_id']}"
        reply = self.client(name).patch(
            f"{run}/taskInstances/{ti['task_id']}/{ti['map_index']}/hitlDetails",
            json={"chosen_options": [what], "params_input": {}},
        )
        return reply.status_code

    def approve_all(self, persons: Mapping[str, str], *running: Running) -> list[Run]:
        """Have every question answered by the person of its task, until all runs have ended."""
        while any(item.process.poll() is None for item in running):
            for question in self._questions():
                self.says(persons[question["task_instance"]["task_id"]], "Approve", question)
            time.sleep(0.5)
        return [run for item in running for run in item.ended()]

    def _questions(self) -> list[dict[str, Any]]:
        value = self.client("admin").get(
            "/api/v2/dags/~/dagRuns/~/hitlDetails", params={"response_received": False}
        )
        questions: list[dict[str, Any]] = value.json()["hitl_details"]
        # One whose state was set by hand has no answer, and does not wait for any.
        return [
            question for question in questions if question["task_instance"]["state"] != "success"
        ]

    def client(self, name: str) -> httpx.Client:
        if name not in self._clients:
            client = httpx.Client(base_url=self._url, timeout=60, trust_env=False)
            who = {"username": name, "password": self._passwords[name]}
            token = client.post("/auth/token", json=who).json()["access_token"]
            client.headers["Authorization"] = f"Bearer {token}"
            self._clients[name] = client
        return self._clients[name]
