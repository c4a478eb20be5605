"""Artefacts from the answers of commands, and the files of a DAG run.

Tasks read these files instead of XCom, which is for people to look at: anybody who may write to a
DAG may write its XCom, while Airflow's API cannot write the files.
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
from veen_airflow.zone import run_directory, zone
from zone.config import ZoneConfig

Context = Mapping[str, Any]
ArtefactsOf = Callable[[CommandAnswer, Context], Sequence[DagArtefact]]
_MINUTE_SEC = 60


def checkpoint_of(state: str, *, is_last: bool = False) -> ArtefactsOf:
    """The artefact of a checkpoint; with ``is_last`` it counts even if it is not new."""

    def artefacts(answer: CommandAnswer, _context: Context) -> Sequence[DagArtefact]:
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

    return artefacts


def push_argv(_context: Context) -> Sequence[str]:
    """The push of a scheduled DAG; without an archive there is nothing to do."""
    if zone().storage is None:
        raise NothingToDo("this zone has no [storage]: it has no archive")
    return archive_push(zone())


def archive_of(state: str) -> ArtefactsOf:
    def artefacts(answer: CommandAnswer, _context: Context) -> Sequence[DagArtefact]:
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

    return artefacts


def anchors_of(answer: CommandAnswer, _context: Context) -> Sequence[DagArtefact]:
    document = answer.document
    return [
        DagArtefact(
            kind="anchor",
            id=f"{document['checkpoint_id']}-{anchor['anchor'].removesuffix('.cbor')}",
            state="verified",
            summary={"checkpoint_id": document["checkpoint_id"], **anchor},
        )
        for anchor in document["anchors"]
    ]


def verify_lateness(answer: CommandAnswer, _context: Context) -> Sequence[DagArtefact]:
    """Raise an alarm if an anchor is later than the settings allow."""
    config, status = zone(), answer.document["status"]
    if not status or status["oldest_waiting"] is None:
        return ()
    age = time.time() - datetime.fromisoformat(status["waiting_since"]).timestamp()
    late = int(age) - _allowed_min(config) * _MINUTE_SEC
    if late > config.dags.alarm_after_min * _MINUTE_SEC:
        oldest = status["oldest_waiting"]
        raise Alarm(
            f"late-{oldest[:16]}",
            f"anchors are {late} s late: {status['waiting']} checkpoints wait, the oldest is "
            f"{oldest}; last error: {status['last_error'] or 'none'}.",
        )
    return ()


def _allowed_min(config: ZoneConfig) -> int:
    """The age in minutes that a checkpoint may reach without an anchor."""
    from recorder.settings import load  # noqa: PLC0415 - only a task needs it

    return max(config.dags.anchor_minutes, load(config.file).anchor.every_minutes)


def carriers_of(answer: CommandAnswer, _context: Context) -> Sequence[DagArtefact]:
    """The verified carriers of a medium."""
    return [
        DagArtefact(
            kind="export",
            id=carrier["bundle_id"] or f"heartbeat-{carrier['n']}",
            state=carrier["verdict"],
            path=carrier["bags"][0],
            summary={
                name: carrier[name] for name in ("n", "stream", "from_seq", "to_seq", "verdict")
            },
        )
        for carrier in answer.document["carriers"]
        if carrier["n"] is not None
    ]


def write_run_file(context: Context, name: str, document: Any) -> None:
    from veen.system import durable  # noqa: PLC0415 - only a task needs it

    durable.write(_path(context, name), json.dumps(document, sort_keys=True).encode())


def read_run_file(context: Context, name: str) -> Any:
    """The content of a run file; None if no task of this run has written it."""
    path = _path(context, name)
    return json.loads(path.read_bytes()) if path.exists() else None


def remove_run_file(context: Context, name: str) -> None:
    _path(context, name).unlink(missing_ok=True)


def _path(context: Context, name: str) -> Path:
    return run_directory(zone(), context) / f"{name}.json"
