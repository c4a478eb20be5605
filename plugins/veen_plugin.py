"""The Airflow plugin: a page in the navigation, and links from tasks to their artefacts.

Every process of Airflow loads it, so that it imports little; the page is imported by its first
request.
"""

from __future__ import annotations

import os
import time
from collections.abc import Awaitable, Callable, MutableMapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final
from urllib.parse import quote, urlsplit

from airflow.configuration import conf
from airflow.plugins_manager import AirflowPlugin
from airflow.sdk.bases.operatorlink import BaseOperatorLink

if TYPE_CHECKING:
    from zone.artefacts import Artefact

PREFIX: Final = "/veen"
ROUTE: Final = "recorder-bridge"
_ROOT: Final = urlsplit(conf.get("api", "base_url", fallback="") or "").path.rstrip("/")
_OURS: Final = "veen_"
_OF_RUN: Final = 100
"""How many artefacts of a kind before the end of a run are searched for its own."""

Message = MutableMapping[str, Any]


class LazyPage:
    """The page's application, created by the first request."""

    def __init__(self) -> None:
        self._app: Any = None

    async def __call__(
        self,
        scope: Message,
        receive: Callable[[], Awaitable[Message]],
        send: Callable[[Message], Awaitable[None]],
    ) -> None:
        if self._app is None:
            from veen_page import app  # noqa: PLC0415 - heavy, and only the api-server needs it

            self._app = app
        await self._app(scope, receive, send)


class RunArtefactLink(BaseOperatorLink):
    """A link from a task to an artefact of its run; empty if there is none."""

    kinds: ClassVar[tuple[str, ...]] = ()
    anchor: ClassVar[str] = ""

    def get_link(self, operator: Any, *, ti_key: Any) -> str:  # noqa: ARG002 - Airflow's own
        if not ti_key.dag_id.startswith(_OURS):
            return ""
        made, seen = _made(ti_key.dag_id, ti_key.run_id, self.kinds)
        artefacts = self.chosen([item for item in made if self.shows(item)], seen)
        if not artefacts:
            return ""
        run = f"/run/{quote(ti_key.dag_id, safe='')}/{quote(ti_key.run_id, safe='')}"
        value = f"/{artefacts[0].kind}/{quote(artefacts[0].id, safe='')}{self.anchor}"
        return f"{_ROOT}/plugin/{ROUTE}{_ROOT}{PREFIX}{value if len(artefacts) == 1 else run}"

    def shows(self, artefact: Artefact) -> bool:  # noqa: ARG002 - others look at it
        return True

    def chosen(self, made: list[Artefact], seen: list[Artefact]) -> list[Artefact]:
        """The artefact of the run, else one that it reported again."""
        return made or [artefact for artefact in seen if self.shows(artefact)]


class BundleLink(RunArtefactLink):
    name = "Bundle"
    kinds = ("export", "import")


class ReceiptLink(RunArtefactLink):
    """A link to the receipt of a completed import."""

    name = "Receipt"
    kinds = ("import",)
    anchor = "#receipt"

    def shows(self, artefact: Artefact) -> bool:
        return artefact.state == "imported"

    def chosen(self, made: list[Artefact], seen: list[Artefact]) -> list[Artefact]:
        """An imported bundle; one that was held is an artefact of an earlier run."""
        return [*made, *(artefact for artefact in seen if self.shows(artefact))]


class ReportLink(RunArtefactLink):
    name = "Report"
    kinds = ("audit", "reconcile", "retention", "query", "fold")


class VeenPlugin(AirflowPlugin):
    name = "veen"
    fastapi_apps = [  # noqa: RUF012 - so Airflow has it
        {"app": LazyPage(), "url_prefix": PREFIX, "name": "Recorder & Bridge"}
    ]
    external_views = [  # noqa: RUF012 - so Airflow has it
        {
            "name": "Recorder & Bridge",
            "href": f"{_ROOT}{PREFIX}/",
            "destination": "nav",
            "nav_top_level": True,
            "url_route": ROUTE,
        }
    ]
    global_operator_extra_links = [  # noqa: RUF012
        BundleLink(),
        ReceiptLink(),
        ReportLink(),
    ]


def _made(dag_id: str, run_id: str, kinds: Sequence[str]) -> tuple[list[Artefact], list[Artefact]]:
    """The artefacts of a run, and those that it reported again."""
    from zone.artefacts import newest  # noqa: PLC0415 - only when a task is looked at
    from zone.config import VARIABLE  # noqa: PLC0415

    file = os.environ.get(VARIABLE)
    if not file:
        return [], []
    before, run = f"{_ended_ms(dag_id, run_id) + 1:020d}", (dag_id, run_id)
    folder = Path(file).parent
    matching = [item for kind in kinds for item in newest(folder, kind, _OF_RUN, before)]
    return (
        [item for item in matching if (item.dag_id, item.run_id) == run],
        [item for item in matching if item.seen and (item.seen.dag_id, item.seen.run_id) == run],
    )


def _ended_ms(dag_id: str, run_id: str) -> int:
    """The end of the run; the current time while it is running."""
    from airflow.models.dagrun import DagRun  # noqa: PLC0415 - the database is the api-server's
    from airflow.utils.session import create_session  # noqa: PLC0415
    from sqlalchemy import select  # noqa: PLC0415

    with create_session() as session:
        end = session.scalar(
            select(DagRun.end_date).where(DagRun.dag_id == dag_id, DagRun.run_id == run_id)
        )
    return time.time_ns() // 1_000_000 if end is None else int(end.timestamp() * 1000)
