"""Who may see the page: Airflow's own users, by the rights that Airflow gives them."""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import cache
from typing import Any, Final

from airflow.api_fastapi.app import get_auth_manager
from airflow.api_fastapi.auth.managers.models.base_user import BaseUser
from airflow.api_fastapi.auth.managers.models.resource_details import (
    AccessView,
    DagAccessEntity,
    DagDetails,
)
from airflow.api_fastapi.core_api.security import requires_access_dag, requires_access_view
from airflow.models.dag import DagModel
from fastapi import Depends, HTTPException, status

LOOK: Final[list[Any]] = [
    Depends(requires_access_view(AccessView.PLUGINS)),
    Depends(requires_access_dag("GET", DagAccessEntity.RUN)),
]
"""For every route: a session, and the right to see plugins and runs."""

TAKE: Final[list[Any]] = [Depends(requires_access_dag("POST", DagAccessEntity.RUN))]
"""For files of the zone: who may start runs. A viewer may not."""


def may_see(user: BaseUser) -> Callable[[str], bool]:
    """Whether a user may see the runs of a DAG; asked once for each DAG of a page."""
    return cache(lambda dag_id: _is_authorized("GET", dag_id, user))


def refuse_unless_may_take(user: BaseUser, dag_id: str) -> None:
    if not _is_authorized("POST", dag_id, user):
        raise HTTPException(status.HTTP_403_FORBIDDEN, "Forbidden")


def seen_dags(user: BaseUser) -> Collection[str]:
    return get_auth_manager().get_authorized_dag_ids(user=user, method="GET")


def _is_authorized(method: Any, dag_id: str, user: BaseUser) -> bool:
    details = DagDetails(id=dag_id, team_name=DagModel.get_team_name(dag_id))
    return bool(
        get_auth_manager().is_authorized_dag(
            method=method, access_entity=DagAccessEntity.RUN, details=details, user=user
        )
    )
