"""What the answers of commands amount to: checkpoints, anchors, archives, carriers, reports."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from veen_command import Answer
from veen_made import Alarm, Made
from veen_zone import zone

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
    status, most = answer.document["status"], zone().dags.alarm_after_min * _MINUTE_SEC
    if status and status["late_seconds"] > most:
        oldest = status["oldest_waiting"] or "none"
        raise Alarm(
            f"late-{oldest[:16]}",
            f"anchors are {status['late_seconds']} s late: {status['waiting']} checkpoints wait, "
            f"the oldest is {oldest}; last error: {status['last_error'] or 'none'}.",
        )
    return ()


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
