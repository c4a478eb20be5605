"""Rendering of templates to HTML: every value is escaped, and an undefined value is an error."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import veen_page_format as words
from jinja2 import Environment, FileSystemLoader, StrictUndefined

PREFIX: Final = "/veen"
TITLES: Final = {
    "checkpoint": "Checkpoints",
    "anchor": "Anchors",
    "archive": "Archive",
    "audit": "Audits",
    "fold": "Folds",
    "query": "Queries",
    "export": "Carriers out",
    "import": "Carriers in",
    "reconcile": "Reconciliations",
    "retention": "Retention",
    "alarm": "Alarms",
}


@dataclass(frozen=True, slots=True)
class PageFrame:
    """What a page is rendered with; ``root`` is the path of Airflow's base URL."""

    root: str
    now: int

    @property
    def page(self) -> str:
        return self.root + PREFIX

    def run(self, dag_id: str, run_id: str) -> str:
        return self.root + words.run_path(dag_id, run_id)

    def task(self, dag_id: str, run_id: str, task_id: str, map_index: int = -1) -> str:
        return self.root + words.task_path(dag_id, run_id, task_id, map_index)


def render(template: str, frame: PageFrame, **values: Any) -> str:
    return _ENVIRONMENT.get_template(template).render(at=frame, titles=TITLES, **values)


def _environment() -> Environment:
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    for name in ("age", "moment", "short", "shade", "plain", "brief", "part"):
        environment.filters[name] = getattr(words, name)
    return environment


_ENVIRONMENT: Final = _environment()
