"""The auth manager of a zone's Airflow: the simple auth manager, and two roles for programs.

Airflow's simple auth manager has four coarse roles; the least of them that may start a DAG run may
also write XCom, set the state of any task and answer any question. The programs of a zone need one
right each, so that each has a role with that right only; everything else is refused (ADR 0055).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from airflow.api_fastapi.auth.managers.models.resource_details import DagAccessEntity
from airflow.api_fastapi.auth.managers.simple.simple_auth_manager import SimpleAuthManager
from airflow.api_fastapi.auth.managers.simple.user import SimpleAuthManagerUser
from airflow.configuration import conf

QUERY: Final = "veen_query"
"""The role of the query service: start a run of the DAG of that name, and read its end."""

ANSWERS: Final = "veen_answers"
"""The role of the import: read the runs of ``veen_import``, its tasks and their answers."""

_RUN: Final = frozenset({DagAccessEntity.RUN})
_READ: Final = frozenset(
    {None, DagAccessEntity.RUN, DagAccessEntity.TASK_INSTANCE, DagAccessEntity.HITL_DETAIL}
)
_ALLOWED: Final[Mapping[str | None, tuple[str, Mapping[str, frozenset[Any]]]]] = {
    QUERY: ("veen_query", {"POST": _RUN, "GET": _RUN}),
    ANSWERS: ("veen_import", {"GET": _READ}),
}
"""The DAG of each role, and what each method may access of it."""


class VeenAuthManager(SimpleAuthManager):
    """The role according to the current settings, not to an old token."""

    def deserialize_user(self, token: dict[str, Any]) -> SimpleAuthManagerUser:
        simple_auth_manager_user = super().deserialize_user(token)
        if conf.getboolean("core", "simple_auth_manager_all_admins"):
            return simple_auth_manager_user
        known = {user.username: user for user in self.get_users()}
        nobody = SimpleAuthManagerUser(username=simple_auth_manager_user.username, role=None)
        return known.get(simple_auth_manager_user.username, nobody)

    def is_authorized_dag(
        self,
        *,
        method: Any,
        user: SimpleAuthManagerUser,
        access_entity: DagAccessEntity | None = None,
        details: Any = None,
    ) -> bool:
        if user.role not in _ALLOWED:
            return super().is_authorized_dag(
                method=method, user=user, access_entity=access_entity, details=details
            )
        dag_id, methods = _ALLOWED[user.role]
        named = details.id if details else None
        return named == dag_id and access_entity in methods.get(method, frozenset())

    def is_authorized_hitl_task(
        self, *, assigned_users: set[str], user: SimpleAuthManagerUser
    ) -> bool:
        """Refuse an answer of a program, even if it is listed among the people."""
        return user.role not in _ALLOWED and super().is_authorized_hitl_task(
            assigned_users=assigned_users, user=user
        )

    def filter_authorized_menu_items(
        self, menu_items: list[Any], *, user: SimpleAuthManagerUser
    ) -> list[Any]:
        return [] if user.role in _ALLOWED else menu_items

    @classmethod
    def _is_admin(cls, user: SimpleAuthManagerUser) -> bool:
        return user.role not in _ALLOWED and super()._is_admin(user)

    @classmethod
    def _is_authorized(cls, *, user: SimpleAuthManagerUser, **asked: Any) -> bool:
        """Access to everything else: connections, variables, pools, assets, settings and views."""
        return user.role not in _ALLOWED and bool(super()._is_authorized(user=user, **asked))

    @staticmethod
    def _print_output(output: str) -> None:
        """Create the password of a new account in its file, without logging it."""
