"""What the answers of commands amount to: checkpoints, anchors, archives, carriers, reports.

Files of one DAG run that its tasks read instead of XCom: Airflow's API cannot write them.

XCom is for people to look at. Whoever may write to a DAG may write its XCom, so nothing that
decides about an import is read from there.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from veen_airflow.alerts import Alarm
from veen_airflow.artefacts import DagArtefact, NothingToDo
from veen_airflow.commands import CommandAnswer, archive_push
from veen_airflow.zone import workplace, zone
from zone.config import ZoneConfig

Context = Mapping[str, Any]
Made_of = Callable[[CommandAnswer, Context], Sequence[DagArtefact]]
_MINUTE_SEC = 60


def checkpoint_of(state: str, *, is_last: bool = False) -> Made_of:
    """``is_last`` is for who goes on with a checkpoint even if it is not new."""

    def made(answer: CommandAnswer, _context: Context) -> Sequence[DagArtefact]:
        document = answer.document
        return [
            DagArtefact(
                kind="checkpoint",
                id=document["checkpoint_id"],
                state=state,
                final="verified",
                is_news=is_last or document.get("is_new", True),
                summary={
                    "created_at": document["created_at"],
                    "log_root": document["log_root"],
                    "streams": len(document["streams"]),
                },
            )
        ]

    return made


def push_words(_context: Context) -> Sequence[str]:
    """For a DAG that runs by itself: without an archive there is nothing to do."""
    if zone().storage is None:
        raise NothingToDo(
            "this zone has no [storage]: nothing is archived, and no archive is worked on"
        )
    return archive_push(zone())


def archive_of(state: str) -> Made_of:
    def made(answer: CommandAnswer, _context: Context) -> Sequence[DagArtefact]:
        document = answer.document
        counts = {name: document[name] for name in ("labels", "entries")}
        return [
            DagArtefact(
                kind="archive",
                id=document["manifest"],
                state=state,
                final="verified",
                is_news=document.get("new_objects", 1) > 0,
                summary=counts,
            )
        ]

    return made


def anchors_of(answer: CommandAnswer, _context: Context) -> Sequence[DagArtefact]:
    document = answer.document
    return [
        DagArtefact(
            kind="anchor",
            id=f"{document['checkpoint_id']}-{item['anchor'].removesuffix('.cbor')}",
            state="verified",
            summary={"checkpoint_id": document["checkpoint_id"], **item},
        )
        for item in document["anchors"]
    ]


def refuse_lateness(answer: CommandAnswer, _context: Context) -> Sequence[DagArtefact]:
    """An anchor may be late for a while; then it is an alarm."""
    of, status = zone(), answer.document["status"]
    if not status or status["oldest_waiting"] is None:
        return ()
    age = time.time() - datetime.fromisoformat(status["waiting_since"]).timestamp()
    late = int(age) - _allowed_min(of) * _MINUTE_SEC
    if late > of.dags.alarm_after_min * _MINUTE_SEC:
        oldest = status["oldest_waiting"]
        raise Alarm(
            f"late-{oldest[:16]}",
            f"anchors are {late} s late: {status['waiting']} checkpoints wait, the oldest is "
            f"{oldest}; last error: {status['last_error'] or 'none'}.",
        )
    return ()


def _allowed_min(of: ZoneConfig) -> int:
    """How old a checkpoint gets without an anchor when all is well."""
    from recorder.settings import load  # noqa: PLC0415 - only a task needs it

    return max(of.dags.anchor_minutes, load(of.file).anchor.every_minutes)


def carriers_of(answer: CommandAnswer, _context: Context) -> Sequence[DagArtefact]:
    """The carriers on a medium, as a check has found them."""
    return [
        DagArtefact(
            kind="export",
            id=item["bundle_id"] or f"heartbeat-{item['n']}",
            state=item["verdict"],
            path=item["bags"][0],
            summary={name: item[name] for name in ("n", "stream", "from_seq", "to_seq", "verdict")},
        )
        for item in answer.document["carriers"]
        if item["n"] is not None
    ]


def write_run_file(context: Context, name: str, document: Any) -> None:
    from veen.system import durable  # noqa: PLC0415 - only a task needs it

    durable.write(_path(context, name), json.dumps(document, sort_keys=True).encode())


def read_run_file(context: Context, name: str) -> Any:
    """None if no task of this run has written it."""
    path = _path(context, name)
    return json.loads(path.read_bytes()) if path.exists() else None


def remove_run_file(context: Context, name: str) -> None:
    _path(context, name).unlink(missing_ok=True)


def _path(context: Context, name: str) -> Path:
    return workplace(zone(), context) / f"{name}.json"
