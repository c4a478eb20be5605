"""The two zones of a demonstration while they are up: their Airflows, commands and artefacts."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from cli.demo.airflow_api import AirflowApi, Run
from cli.demo.claim import Claims
from cli.demo.words import Words
from cli.failure import Refused
from cli.zone_home import ZoneHome
from recorder import artefact as artefacts
from recorder.artefact import Artefact
from recorder.zone import Zone

PATIENCE_SEC = 600.0
"""How long one run of a DAG may take on a small, busy host."""


@dataclass(frozen=True, slots=True)
class Side:
    """One zone, and Airflow as its people and its query service see it."""

    home: ZoneHome
    zone: Zone
    operator: AirflowApi
    viewer: AirflowApi
    service: AirflowApi

    @property
    def config(self) -> tuple[str, Path]:
        return "--config", self.home.file

    @property
    def admin(self) -> tuple[str | Path, ...]:
        """The words by which a command acts as the one who manages streams."""
        return (*self.config, "--client", self.home.identity("admin").root, "--principal", "admin")

    def log_of(self, run: Run) -> str:
        """What Airflow kept of a run; it is there when Airflow is not."""
        folder = self.home.airflow / "logs" / f"dag_id={run.dag_id}" / f"run_id={run.run_id}"
        return str(folder)

    def made(self, kind: str, limit: int = 100) -> list[Artefact]:
        """The newest first."""
        return list(artefacts.newest(self.home.root, kind, limit))


@dataclass(frozen=True, slots=True)
class Stage:
    """``online`` is Z1 and ``offline`` Z2; ``tell`` prints as it happens."""

    folder: Path
    online: Side
    offline: Side
    words: Words
    claims: Claims
    tell: Callable[[str], None]

    @property
    def stick(self) -> Path:
        """The directory that stands for the medium, as it is mounted in Z1."""
        return self.online.zone.dags.medium

    @property
    def mounted(self) -> Path:
        """The same medium in Z2, once somebody has carried it over."""
        return self.offline.zone.dags.medium

    def succeeded(self, side: Side, run: Run) -> Run:
        """The run at its end; one that fails ends the demonstration."""
        found = side.operator.await_end(run, PATIENCE_SEC)
        if found.state != "success":
            raise Refused(
                f"{run.dag_id} failed in {side.zone.name}: {side.operator.tasks(run)}; "
                f"see {side.operator.link(run)} and {side.home.airflow / 'logs'}"
            )
        self.tell(f"  {side.zone.name}: Airflow ran {run.dag_id} ({run.type}): {found.state}")
        return found

    def heads(self, side: Side, beginning: str) -> dict[str, int]:
        """How far the streams of that name go, by a checkpoint that the hub signs for it."""
        found = self.words.veen("recorder", "checkpoint", "create", *side.admin).document
        return {
            one["name"]: one["last_seq"]
            for one in found["streams"]
            if one["name"].startswith(beginning)
        }


@contextmanager
def staged(
    folder: Path, homes: tuple[ZoneHome, ZoneHome], words: Words, tell: Callable[[str], None]
) -> Iterator[Stage]:
    with ExitStack() as stack:
        online, offline = (_side(home, stack) for home in homes)
        yield Stage(folder, online, offline, words, Claims(), tell)


def _side(home: ZoneHome, stack: ExitStack) -> Side:
    zone = home.zone()
    passwords = json.loads(home.passwords.read_bytes())
    people = []
    for name in ("operator", "viewer", "service"):
        api = AirflowApi(zone.airflow.url, name, passwords[name])
        stack.callback(api.close)
        people.append(api)
    return Side(home, zone, *people)
