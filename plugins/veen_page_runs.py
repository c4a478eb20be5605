"""When a run ended, as Airflow keeps it."""

from __future__ import annotations

from typing import Final

from airflow.models.dagrun import DagRun
from sqlalchemy import select
from sqlalchemy.orm import Session

_LATER: Final = 253_402_300_799_000
"""The last moment that a date can be, in milliseconds: for runs that have not ended."""


def ended_ms(session: Session, dag_id: str, run_id: str) -> int:
    """In milliseconds; what a run makes, it makes before."""
    wanted = select(DagRun.end_date).where(DagRun.dag_id == dag_id, DagRun.run_id == run_id)
    found = session.scalar(wanted)
    return int(found.timestamp() * 1000) + 1 if found else _LATER
