"""What a run has made, kept as an artefact of the zone, and told to the runs after it."""

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
"""Where the page of artefacts stands in Airflow; the plugin serves it."""

_LOG = logging.getLogger(__name__)


class NothingToDo(Exception):
    """There is nothing to do; what follows is skipped."""


class DagRefusal(Exception):
    """What cannot be done as things are; to try it again changes nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DagArtefact:
    """``final`` is the state in which there is nothing left to be done about it.

    ``is_news`` is false when the command has found all of it done before.
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
        """Below the path that Airflow stands at, where that is not the root of its host."""
        from airflow.sdk.configuration import conf  # noqa: PLC0415 - a DAG is parsed without it

        root = urlsplit(conf.get("api", "base_url", fallback="") or "").path.rstrip("/")
        return f"{root}{PAGE}/{self.kind}/{quote(self.id, safe='')}"


def keep(zone: ZoneConfig, made: DagArtefact, context: Mapping[str, Any]) -> None:
    """Write it down; the same thing again is the same file."""
    from zone.artefacts import Artefact, write  # noqa: PLC0415 - a DAG is parsed without it

    task = context["ti"]
    write(
        zone.folder,
        Artefact(
            kind=made.kind,
            id=made.id,
            made_at=time.time_ns() // 1_000_000,
            dag_id=task.dag_id,
            run_id=task.run_id,
            task_id=task.task_id,
            state=made.state,
            summary=made.summary,
            path=made.path,
        ),
    )
    _LOG.info("%s %s: %s", made.kind, made.id, made.state)


def known(zone: ZoneConfig, kind: str, value: str) -> str | None:
    """The state in which an earlier task has left a thing; None if it is new."""
    result = stored(zone, kind, value)
    return result.state if result else None


def stored(zone: ZoneConfig, kind: str, value: str) -> Artefact | None:
    """What an earlier task has told of a thing."""
    from zone.artefacts import FOLDER, decode  # noqa: PLC0415 - a DAG is parsed without it

    folder = zone.folder / FOLDER / kind
    result = [path for path in folder.glob(f"*-{value}.json") if path.name[21:-5] == value]
    return decode(result[0]) if result else None
