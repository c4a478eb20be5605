"""Artefacts of a DAG run, stored in the zone for later runs and for its page."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote, urlsplit

if TYPE_CHECKING:
    from zone.artefacts import Artefact
    from zone.config import ZoneConfig

PAGE: Final = "/veen"
"""The path of the page of artefacts in Airflow, served by the plugin."""

_LOG = logging.getLogger(__name__)


class NothingToDo(Exception):
    """There is nothing to do; the following tasks are skipped."""


class DagRefusal(Exception):
    """A step that cannot succeed; a retry would not help."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DagArtefact:
    """An artefact of a task. ``final`` is the state in which nothing is left to do about it.

    ``is_news`` is false if an earlier run has already done all of it.
    """

    kind: str
    id: str
    state: str
    summary: Mapping[str, Any] = field(default_factory=dict)
    path: str | None = None
    is_news: bool = True
    final: str = ""

    @property
    def link(self) -> str:
        """The link to its page, below the path of Airflow's base URL."""
        from airflow.sdk.configuration import conf  # noqa: PLC0415 - a DAG is parsed without it

        root = urlsplit(conf.get("api", "base_url", fallback="") or "").path.rstrip("/")
        return f"{root}{PAGE}/{self.kind}/{quote(self.id, safe='')}"


def write_artefact(zone: ZoneConfig, artefact: DagArtefact, context: Mapping[str, Any]) -> None:
    """Write an artefact of a task; the same id has the same file."""
    from zone.artefacts import Artefact, write  # noqa: PLC0415 - a DAG is parsed without it

    task = context["ti"]
    write(
        zone.folder,
        Artefact(
            kind=artefact.kind,
            id=artefact.id,
            made_at=time.time_ns() // 1_000_000,
            dag_id=task.dag_id,
            run_id=task.run_id,
            task_id=task.task_id,
            state=artefact.state,
            summary=artefact.summary,
            path=artefact.path,
        ),
    )
    _LOG.info("%s %s: %s", artefact.kind, artefact.id, artefact.state)


def artefact_state(zone: ZoneConfig, kind: str, artefact_id: str) -> str | None:
    """The state of an artefact after earlier tasks; None if it is new."""
    artefact = load_artefact(zone, kind, artefact_id)
    return artefact.state if artefact else None


def load_artefact(zone: ZoneConfig, kind: str, artefact_id: str) -> Artefact | None:
    """The artefact of an earlier task, if there is one."""
    from zone.artefacts import FOLDER, decode  # noqa: PLC0415 - a DAG is parsed without it

    folder = zone.folder / FOLDER / kind
    paths = [
        path for path in folder.glob(f"*-{artefact_id}.json") if path.name[21:-5] == artefact_id
    ]
    return decode(paths[0]) if paths else None
