"""What the answers of commands amount to: checkpoints, anchors, archives, carriers, reports."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any

from veen_alarm import Alarm
from veen_command import Answer
from veen_made import Made, Nothing
from veen_words import archive_push
from veen_zone import zone

from recorder.zone import Zone

Context = Mapping[str, Any]
Made_of = Callable[[Answer, Context], Sequence[Made]]
_MINUTE_SEC = 60


def checkpoint_of(state: str, *, is_last: bool = False) -> Made_of:
    """``is_last`` is for who goes on with a checkpoint even if it is not new."""

    def made(answer: Answer, _context: Context) -> Sequence[Made]:
        found = answer.document
        return [
            Made(
                kind="checkpoint",
                id=found["checkpoint_id"],
                state=state,
                final="verified",
                is_news=is_last or found.get("is_new", True),
                summary={
                    "created_at": found["created_at"],
                    "log_root": found["log_root"],
                    "streams": len(found["streams"]),
                },
            )
        ]

    return made


def push_words(_context: Context) -> Sequence[str]:
    """For a DAG that runs by itself: without an archive there is nothing to do."""
    if zone().storage is None:
        raise Nothing(
            "this zone has no [storage]: nothing is archived, and no archive is worked on"
        )
    return archive_push(zone())


def archive_of(state: str) -> Made_of:
    def made(answer: Answer, _context: Context) -> Sequence[Made]:
        found = answer.document
        counts = {name: found[name] for name in ("labels", "entries")}
        return [
            Made(
                kind="archive",
                id=found["manifest"],
                state=state,
                final="verified",
                is_news=found.get("new_objects", 1) > 0,
                summary=counts,
            )
        ]

    return made


def anchors_of(answer: Answer, _context: Context) -> Sequence[Made]:
    found = answer.document
    return [
        Made(
            kind="anchor",
            id=f"{found['checkpoint_id']}-{one['anchor'].removesuffix('.cbor')}",
            state="verified",
            summary={"checkpoint_id": found["checkpoint_id"], **one},
        )
        for one in found["anchors"]
    ]


def refuse_lateness(answer: Answer, _context: Context) -> Sequence[Made]:
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


def _allowed_min(of: Zone) -> int:
    """How old a checkpoint gets without an anchor when all is well."""
    from recorder.settings import load  # noqa: PLC0415 - only a task needs it

    return max(of.dags.anchor_minutes, load(of.file).anchor.every_minutes)


def carriers_of(answer: Answer, _context: Context) -> Sequence[Made]:
    """The carriers on a medium, as a check has found them."""
    return [
        Made(
            kind="export",
            id=one["bundle_id"] or f"heartbeat-{one['n']}",
            state=one["verdict"],
            path=one["bags"][0],
            summary={name: one[name] for name in ("n", "stream", "from_seq", "to_seq", "verdict")},
        )
        for one in answer.document["carriers"]
        if one["n"] is not None
    ]
