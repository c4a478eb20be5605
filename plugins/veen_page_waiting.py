"""What waits for a person: the open questions of this zone's DAGs, as Airflow keeps them."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

from airflow.models.hitl import HITLDetail
from airflow.models.taskinstance import TaskInstance
from airflow.utils.state import TaskInstanceState
from sqlalchemy import select
from sqlalchemy.orm import Session

MOST: Final = 25
_OURS: Final = "veen\\_%"
_OPEN: Final = (
    TaskInstanceState.AWAITING_INPUT,
    TaskInstanceState.DEFERRED,
    TaskInstanceState.RUNNING,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """``people`` are those who may answer; empty where anyone may who may run the DAG."""

    subject: str
    dag_id: str
    run_id: str
    task_id: str
    map_index: int
    asked_at: int
    people: tuple[str, ...]


def waiting(session: Session, dag_ids: Collection[str]) -> tuple[Waiting, ...]:
    """The oldest first: who has waited longest is helped first."""
    found = session.execute(
        select(HITLDetail, TaskInstance)
        .join(TaskInstance, HITLDetail.ti_id == TaskInstance.id)
        .where(
            HITLDetail.responded_at.is_(None),
            TaskInstance.state.in_(_OPEN),
            TaskInstance.dag_id.in_(dag_ids),
            TaskInstance.dag_id.like(_OURS, escape="\\"),
        )
        .order_by(HITLDetail.created_at)
        .limit(MOST)
    )
    return tuple(
        Waiting(
            subject=detail.subject,
            dag_id=task.dag_id,
            run_id=task.run_id,
            task_id=task.task_id,
            map_index=task.map_index,
            asked_at=int(detail.created_at.timestamp()),
            people=tuple(one["name"] for one in detail.assigned_users),
        )
        for detail, task in found
    )
