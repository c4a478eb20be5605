"""The zones of the demonstration: their commands, their Airflows over the REST API, and its claims.

Each claim is judged by what was read. With S3, an S3-compatible server runs on this host.
"""

from __future__ import annotations

import json
import shlex
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple

import httpx

from veen.errors import Refused
from veen.system.child_process import end_with_parent
from veen.system.signals import interruptible_sleep
from zone import artefacts
from zone.artefacts import Artefact
from zone.config import ZoneConfig
from zone.directory import ZoneHome

_TIMEOUT_SEC: Final = 60.0
_ATTEMPTS: Final = 5
_LOOK_SEC: Final = 1.0
_ENDED: Final = ("success", "failed")
_START_SEC: Final = 60.0
_COMMAND_TIMEOUT_SEC: Final = 300.0
RUN_TIMEOUT_SEC = 600.0
"""The timeout of a DAG run on a small, busy host."""


class DagRunRef(NamedTuple):
    dag_id: str
    run_id: str
    state: str
    type: str

    @property
    def has_ended(self) -> bool:
        return self.state in _ENDED


class WaitingTask(NamedTuple):
    """A task that waits for a person."""

    run: DagRunRef
    task_id: str


class AirflowApi:
    """A user of an Airflow over its REST API; every wait has a timeout with a message."""

    def __init__(self, url: str, username: str, password: str) -> None:
        self.url = url
        self._http = httpx.Client(
            base_url=url, timeout=_TIMEOUT_SEC, trust_env=False, headers={"Accept": "*/*"}
        )
        given = {"username": username, "password": password}
        try:
            token = self.ask("POST", "/auth/token", given)["access_token"]
        except Refused:
            self.close()
            raise
        self._http.headers["Authorization"] = f"Bearer {token}"

    def close(self) -> None:
        self._http.close()

    def ask(self, method: str, path: str, given: Any = None) -> dict[str, Any]:
        reply = self.reply(method, path, given)
        if not reply.is_success:
            raise Refused(f"Airflow refused {method} {path}: {reply.status_code} {reply.text}")
        document: dict[str, Any] = reply.json()
        return document

    def reply(self, method: str, path: str, given: Any = None) -> httpx.Response:
        """A request; an idempotent request is retried while a busy host fails to answer."""
        attempts = _ATTEMPTS if method == "GET" or path.startswith("/auth/") else 1
        for left in reversed(range(attempts)):
            try:
                request = self._http.request(method, path, json=given)
                if not left or not request.is_server_error:
                    return request
            except httpx.HTTPError as error:
                if not left:
                    raise Refused(f"Airflow does not answer at {self.url}: {error}") from error
            interruptible_sleep(_LOOK_SEC)
        raise AssertionError(path)

    def await_dags(self, value: set[str], timeout_sec: float) -> None:
        """Wait until the DAG processor has parsed the DAGs."""

        def there() -> bool:
            dags = self.ask("GET", "/api/v2/dags?limit=100")["dags"]
            return value <= {item["dag_id"] for item in dags}

        await_that(there, f"DAGs {', '.join(sorted(value))} at {self.url}", timeout_sec)

    def unpause(self, dag_id: str) -> None:
        self.ask("PATCH", f"/api/v2/dags/{dag_id}", {"is_paused": False})

    def watch(self, dag_id: str) -> None:
        """Unpause a DAG with an external trigger, and have Airflow start the trigger now."""
        self.unpause(dag_id)
        token = self.ask("GET", f"/api/v2/dags/{dag_id}")["file_token"]
        self.ask("PUT", f"/api/v2/parseDagFile/{token}")

    def trigger(self, dag_id: str, conf: dict[str, Any] | None = None) -> DagRunRef:
        given = {"logical_date": None, "conf": conf or {}}
        return _run(self.ask("POST", f"/api/v2/dags/{dag_id}/dagRuns", given))

    def runs(self, dag_id: str) -> list[DagRunRef]:
        """The runs of a DAG, oldest first."""
        runs = self.ask("GET", f"/api/v2/dags/{dag_id}/dagRuns?limit=100")["dag_runs"]
        return [_run(item) for item in sorted(runs, key=lambda item: str(item["run_after"]))]

    def await_new(self, dag_id: str, before: list[DagRunRef], timeout_sec: float) -> DagRunRef:
        """Wait for a run that was started by Airflow itself."""
        known = {dag_run_ref.run_id for dag_run_ref in before}

        def there() -> DagRunRef | None:
            return next((run for run in self.runs(dag_id) if run.run_id not in known), None)

        run: DagRunRef = await_that(there, f"a run of {dag_id}", timeout_sec)
        return run

    def run(self, dag_id: str, run_id: str) -> DagRunRef:
        return _run(self.ask("GET", f"/api/v2/dags/{dag_id}/dagRuns/{run_id}"))

    def await_end(self, run: DagRunRef, timeout_sec: float) -> DagRunRef:
        def ended() -> DagRunRef | None:
            current = self.run(run.dag_id, run.run_id)
            return current if current.has_ended else None

        run_at_end: DagRunRef = await_that(
            ended, f"the end of {run.dag_id} {run.run_id}", timeout_sec
        )
        return run_at_end

    def tasks(self, run: DagRunRef) -> dict[str, str]:
        """The states of the tasks of a run."""
        path = f"/api/v2/dags/{run.dag_id}/dagRuns/{run.run_id}/taskInstances"
        instances = self.ask("GET", path)["task_instances"]
        return {str(item["task_id"]): str(item["state"]) for item in instances}

    def await_question(self, dag_id: str, timeout_sec: float) -> WaitingTask:
        """Wait for a task that asks a person, in any run."""
        tasks: list[WaitingTask] = await_that(
            lambda: self.questions(dag_id), f"a question of {dag_id}", timeout_sec
        )
        return tasks[0]

    def questions(self, dag_id: str) -> list[WaitingTask]:
        path = f"/api/v2/dags/{dag_id}/dagRuns/~/hitlDetails?response_received=false"
        tasks = [item["task_instance"] for item in self.ask("GET", path)["hitl_details"]]
        waiting_tasks = [
            WaitingTask(self.run(dag_id, task["dag_run_id"]), task["task_id"]) for task in tasks
        ]
        return [task for task in waiting_tasks if not task.run.has_ended]

    def await_answered(self, run: DagRunRef, option: str, timeout_sec: float) -> DagRunRef:
        """Wait for the end of a run; a question that is asked again is answered again."""

        def ended() -> DagRunRef | None:
            for question in self.questions(run.dag_id):
                if question.run.run_id == run.run_id:
                    self.answer(question, option)
            current = self.run(run.dag_id, run.run_id)
            return current if current.has_ended else None

        answered: DagRunRef = await_that(
            ended, f"the end of {run.dag_id} {run.run_id}", timeout_sec
        )
        return answered

    def answer(self, question: WaitingTask, option: str) -> httpx.Response:
        run = question.run
        at = f"/api/v2/dags/{run.dag_id}/dagRuns/{run.run_id}/taskInstances/{question.task_id}/-1"
        given = {"chosen_options": [option], "params_input": {}}
        return self.reply("PATCH", f"{at}/hitlDetails", given)

    def set_success(self, question: WaitingTask) -> httpx.Response:
        """Set the state of a task by hand, without an answer."""
        run = question.run
        at = f"/api/v2/dags/{run.dag_id}/dagRuns/{run.run_id}/taskInstances/{question.task_id}"
        return self.reply("PATCH", at, {"new_state": "success"})

    def link(self, run: DagRunRef) -> str:
        return f"{self.url}/dags/{run.dag_id}/runs/{run.run_id}"


def await_that(there: Callable[[], Any], what: str, timeout_sec: float) -> Any:
    deadline = time.monotonic() + timeout_sec
    while not (value := there()):
        if time.monotonic() > deadline:
            raise Refused(f"timed out after {timeout_sec:.0f} s, waiting for {what}")
        interruptible_sleep(_LOOK_SEC)
    return value


def _run(document: dict[str, Any]) -> DagRunRef:
    return DagRunRef(
        document["dag_id"], document["dag_run_id"], document["state"], document["run_type"]
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoClaim:
    """A claim; ``detail`` is what it was judged by, ``link`` its evidence."""

    says: str
    holds: bool
    detail: str
    link: str

    def document(self) -> dict[str, Any]:
        return {"says": self.says, "holds": self.holds, "detail": self.detail, "link": self.link}


class Claims:
    """The judged claims, in order."""

    def __init__(self) -> None:
        self.judged: list[DemoClaim] = []

    def judge(self, says: str, holds: bool, *, detail: str, link: str) -> DemoClaim:
        claim = DemoClaim(says=says, holds=holds, detail=detail, link=link)
        self.judged.append(claim)
        return claim

    @property
    def broken(self) -> list[DemoClaim]:
        return [claim for claim in self.judged if not claim.holds]


def table(claims: list[DemoClaim]) -> Iterator[str]:
    width = max(len(claim.says) for claim in claims)
    yield f"{'invariant':<{width}}  held  judged by"
    for claim in claims:
        yield f"{claim.says:<{width}}  {'yes ' if claim.holds else 'NO  '}  {claim.detail}"
    yield ""
    yield "where it is"
    for claim in claims:
        yield f"  {claim.says:<{width}}  {claim.link}"


@contextmanager
def object_server(log: Path, buckets: tuple[str, ...]) -> Iterator[str]:
    """An S3-compatible server with these buckets, as its URL; stopped at the end of the block."""
    program = Path(sys.executable).with_name("moto_server")
    if not program.exists():
        raise Refused("moto_server is missing: run make setup")
    port = _free_port()
    url = f"http://127.0.0.1:{port}"
    with log.open("ab") as file:
        process = subprocess.Popen(  # noqa: S603
            [str(program), "-H", "127.0.0.1", "-p", str(port)],
            stdin=subprocess.DEVNULL, stdout=file, stderr=file, start_new_session=True,
            preexec_fn=end_with_parent,  # noqa: PLW1509
        )  # fmt: skip
    try:
        _await(process, url)
        for name in buckets:
            httpx.put(f"{url}/{name}", trust_env=False).raise_for_status()
        yield url
    finally:
        process.terminate()
        process.wait()


def _await(process: subprocess.Popen[bytes], url: str) -> None:
    deadline = time.monotonic() + _START_SEC
    while True:
        try:
            httpx.get(url, trust_env=False)
        except httpx.HTTPError:
            if process.poll() is not None or time.monotonic() > deadline:
                raise Refused("the S3-compatible server does not start") from None
            time.sleep(0.1)
        else:
            return


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


class CommandResult(NamedTuple):
    code: int
    document: Mapping[str, Any]


class CommandRunner:
    """Runs ``veen`` commands; each is printed before it runs, and answers with a JSON document."""

    def __init__(self, environment: Mapping[str, str], report: Callable[[str], None]) -> None:
        self._environment = {**environment, "PYTHONSAFEPATH": "1"}
        self._report = report

    def veen(
        self,
        *words: str | Path,
        accept: tuple[int, ...] = (0,),
        timeout_sec: float = _COMMAND_TIMEOUT_SEC,
    ) -> CommandResult:
        given = [str(word) for word in words]
        self._report(f"$ veen {shlex.join(given)}")
        try:
            done = subprocess.run(  # noqa: S603 - our own program
                [sys.executable, "-P", "-m", "cli.main", *given, "--json"],
                env=self._environment,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=timeout_sec,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            raise Refused(f"veen {given[0]} {given[1]} took too long: {error}") from error
        document = _document(done.stdout)
        if done.returncode not in accept:
            why = document.get("detail") or done.stderr.decode(errors="replace").strip()[-500:]
            raise Refused(f"veen {given[0]} {given[1]} ended with {done.returncode}: {why}")
        return CommandResult(done.returncode, document)


def _document(printed: bytes) -> dict[str, Any]:
    try:
        document = json.loads(printed)
    except ValueError:
        return {}
    return document if isinstance(document, dict) else {}


@dataclass(frozen=True, slots=True)
class DemoZone:
    """A zone, and its Airflow as seen by its users and its query service."""

    home: ZoneHome
    zone: ZoneConfig
    operator: AirflowApi
    viewer: AirflowApi
    service: AirflowApi

    @property
    def config(self) -> tuple[str, Path]:
        return "--config", self.home.file

    @property
    def admin(self) -> tuple[str | Path, ...]:
        """Options with which a command acts as the admin."""
        return (*self.config, "--client", self.home.identity("admin").root, "--principal", "admin")

    def log_of(self, run: DagRunRef) -> str:
        """The artefacts of the zone, which are files."""
        folder = self.home.airflow / "logs" / f"dag_id={run.dag_id}" / f"run_id={run.run_id}"
        return str(folder)

    def made(self, kind: str, limit: int = 100) -> list[Artefact]:
        """The artefacts of a kind, newest first."""
        return list(artefacts.newest(self.home.root, kind, limit))


@dataclass(frozen=True, slots=True)
class DemoStage:
    """Both zones, ``online`` Z1 and ``offline`` Z2; ``report`` prints progress."""

    folder: Path
    online: DemoZone
    offline: DemoZone
    commands: CommandRunner
    claims: Claims
    report: Callable[[str], None]

    @property
    def stick(self) -> Path:
        """The directory that simulates the medium in Z1."""
        return self.online.zone.dags.medium

    @property
    def mounted(self) -> Path:
        """The same medium in Z2."""
        return self.offline.zone.dags.medium

    def succeeded(self, side: DemoZone, run: DagRunRef) -> DagRunRef:
        """Wait for the end of a run; a failed run ends the demonstration."""
        dag_run_ref = side.operator.await_end(run, RUN_TIMEOUT_SEC)
        if dag_run_ref.state != "success":
            raise Refused(
                f"{run.dag_id} failed in {side.zone.name}: {side.operator.tasks(run)}; "
                f"see {side.operator.link(run)} and {side.home.airflow / 'logs'}"
            )
        self.report(
            f"  {side.zone.name}: Airflow ran {run.dag_id} ({run.type}): {dag_run_ref.state}"
        )
        return dag_run_ref

    def heads(self, side: DemoZone, beginning: str) -> dict[str, int]:
        """The ends of streams with a prefix, from a new checkpoint."""
        document = self.commands.veen("recorder", "checkpoint", "create", *side.admin).document
        return {
            stream["name"]: stream["last_seq"]
            for stream in document["streams"]
            if stream["name"].startswith(beginning)
        }


@contextmanager
def staged(
    folder: Path,
    homes: tuple[ZoneHome, ZoneHome],
    commands: CommandRunner,
    report: Callable[[str], None],
) -> Iterator[DemoStage]:
    with ExitStack() as stack:
        online, offline = (_side(home, stack) for home in homes)
        yield DemoStage(folder, online, offline, commands, Claims(), report)


def _side(home: ZoneHome, stack: ExitStack) -> DemoZone:
    zone = home.zone()
    passwords = json.loads(home.passwords.read_bytes())
    people = []
    for name in ("operator", "viewer", "service"):
        api = AirflowApi(zone.airflow.url, name, passwords[name])
        stack.callback(api.close)
        people.append(api)
    return DemoZone(home, zone, *people)
