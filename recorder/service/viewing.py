"""What a principal may see of queries and results: its own, or all (Query API 7.3 to 7.5)."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from recorder.index.home import IndexHome
from recorder.index.placement import misplaced
from recorder.index.snapshot import snapshot
from recorder.service.principals import sees
from recorder.service.query_state import Query, State
from recorder.service.refusal import ErrorCode, Refusal, code_of, not_found
from recorder.service.results import Results
from recorder.service.rows_file import RowsFile
from recorder.settings_query import QueryPrincipal

EXPIRED: Final = (
    "the rows of this result are kept no longer; its digest is recorded: run the query again, or "
    "replay its package"
)
_RESULT_ID: Final = re.compile(r"r-[0-9a-f]{32}")


@dataclass(frozen=True, slots=True)
class Page:
    """Some rows of a result, in canonical JSON; ``total`` is how many there are."""

    query: Query
    rows: list[bytes]
    offset: int
    limit: int
    total: int

    @property
    def has_more(self) -> bool:
        return self.offset + len(self.rows) < self.total


class Viewing:
    def __init__(
        self, results: Results, directory: Path, max_page: int, index: IndexHome | None = None
    ) -> None:
        self._index = index
        self._results = results
        self._directory = directory
        self._max_page = max_page

    def status(self, principal: QueryPrincipal, result_id: str) -> Query:
        if not _RESULT_ID.fullmatch(result_id):
            raise not_found()
        found = _shown(principal, self._results.by_result(result_id))
        if found.state is State.COMPLETED and self._results.is_expired(result_id):
            return replace(found, message=EXPIRED)
        return found

    def descriptor(self, principal: QueryPrincipal, query_id: str) -> Query:
        found = _shown(principal, self._results.by_query(query_id))
        if found.request_event is None:
            raise Refusal(ErrorCode.RESULT_NOT_READY, "the query is not recorded yet; ask again")
        return found

    def completed(self, principal: QueryPrincipal, result_id: str) -> Query:
        """A query with its result; one without says why: not ready, failed, or expired."""
        found = self.status(principal, result_id)
        if found.state is State.FAILED:
            raise Refusal(
                code_of(found.error_code or "execution_failed"), found.message or "the query failed"
            )
        if found.state is not State.COMPLETED:
            raise Refusal(
                ErrorCode.RESULT_NOT_READY, f"the query is {found.state.value}; ask again later"
            )
        if found.message is not None:
            raise Refusal(ErrorCode.QUERY_NOT_FOUND, found.message)
        return found

    def page(self, query: Query, offset: int, limit: int) -> Page:
        """Rows of a completed query; more than the bound at once is cut to it."""
        bounded = min(limit, self._max_page)
        rows = self.rows(query)
        return Page(query, rows.page(offset, bounded), offset, bounded, rows.count())

    def faults(self, query: Query) -> list[dict[str, Any]]:
        """Of what a completed query searched: events that stand in the wrong stream (SDR0 3.2.2).

        They are among the rows if they match; who reads them should know.
        """
        if self._index is None or query.digest is None or not self._index.exists():
            return []
        digest = json.loads(query.digest)
        with snapshot(self._index) as held:
            rows = {(one.hub_id.hex(), one.name): one for one in held.streams()}
            found = [
                misplaced(held.db, row, one["from_seq"], one["to_seq"])
                for one in digest["searched"]
                if (row := rows.get((digest["hub_id"], one["stream"]))) is not None
            ]
        return [one.document() for one in found if one.count]

    def rows(self, query: Query) -> RowsFile:
        return RowsFile(self._directory / query.result_id)


def _shown(principal: QueryPrincipal, query: Query | None) -> Query:
    if query is None or not sees(principal, query.principal):
        raise not_found()
    return query
