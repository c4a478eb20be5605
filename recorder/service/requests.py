"""Query requests: authorisation, submission, and access to results (Query API 7.1 to 7.5).

A submitted query is normalised, limited to the scope of its principal, and recorded before it is
run. Principals see their own queries and results, or all of them.

Streams that can be queried are those of the configuration and those of our hub in the index.
Streams of other hubs are in the index as far as their events were imported, but no checkpoint of
ours covers them: they serve only to run a query of the other zone again.
"""

from __future__ import annotations

import hmac
import json
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Final

from recorder.index.placement import misplaced
from recorder.index.reader import snapshot
from recorder.index.tables import IndexHome, NoIndex
from recorder.query.descriptor import Descriptor, JsonLimits, normalise, parse_json
from recorder.service.database import Query, QueryState, Results
from recorder.service.errors import (
    BadDescriptor,
    ErrorCode,
    Refusal,
    code_of,
    not_found,
    unavailable,
)
from recorder.service.execute import RowsFile
from recorder.settings import AUDITOR, SUBMITTER, QueryPrincipal, RecorderSettings, refuse_unmapped
from veen.digest import h
from veen.keystore.card import read_card
from veen.keystore.directory import ClientDir
from veen.system.environment import Runtime

_NO_TOKEN: Final = b""
_ID_BYTES: Final = 16
_FIRST_POLL_SEC: Final = 0.002
_MAX_POLL_SEC: Final = 0.05
EXPIRED: Final = (
    "the rows of this result have expired; its digest is recorded: run the query again, or "
    "replay its package"
)
_RESULT_ID: Final = re.compile(r"r-[0-9a-f]{32}")


class Principals:
    """The configured principals."""

    def __init__(self, principals: Iterable[QueryPrincipal]) -> None:
        self._all = tuple(principals)
        refuse_unmapped(self._all)
        self._identities = {principal.name: _identity(principal) for principal in self._all}

    def identity(self, principal: QueryPrincipal) -> bytes:
        """The VEEN identity of a principal: its own key, or that of its client directory."""
        return self._identities[principal.name]

    def by_name(self, name: str) -> QueryPrincipal | None:
        return next((principal for principal in self._all if principal.name == name), None)

    def key_of(self, name: str) -> bytes | None:
        principal = self.by_name(name)
        return principal.public_key if principal else None

    def by_token(self, token: str) -> QueryPrincipal | None:
        """Compares every principal, so that the time taken reveals nothing."""
        digest = h(token.encode("utf-8", "surrogateescape"))
        matching = [
            principal
            for principal in self._all
            if hmac.compare_digest(principal.token_sha256 or _NO_TOKEN, digest)
        ]
        return matching[0] if matching else None


def _identity(principal: QueryPrincipal) -> bytes:
    if principal.public_key is not None:
        return principal.public_key
    assert principal.client is not None  # noqa: S101 - verified by refuse_unmapped
    return read_card(ClientDir(principal.client).card).client_id


def sees(principal: QueryPrincipal, submitter: str) -> bool:
    """Whether a principal may see the queries and results of a submitter."""
    return principal.name == submitter or AUDITOR in principal.roles


def verify_scope(principal: QueryPrincipal, scope: Sequence[str], known: frozenset[str]) -> None:
    """Verify that every stream exists and is within the principal's scopes.

    The error does not say which of the two failed.
    """
    if SUBMITTER not in principal.roles:
        raise Refusal(ErrorCode.FORBIDDEN_SCOPE, "your roles do not submit queries")
    for stream in scope:
        if stream not in known or not _may_read(principal, stream):
            raise Refusal(
                ErrorCode.FORBIDDEN_SCOPE,
                f"{stream!r}: expected a stream that you may query; name streams one by one",
            )


def _may_read(principal: QueryPrincipal, stream: str) -> bool:
    return any(fnmatchcase(stream, pattern) for pattern in principal.scopes)


class ServiceStreams:
    """The names of the streams that can be queried."""

    def __init__(self, settings: RecorderSettings, index: IndexHome) -> None:
        self._configured = frozenset(stream.name for stream in settings.streams.streams)
        self._index = index

    def names(self) -> frozenset[str]:
        try:
            with snapshot(self._index) as held:
                own = {stream.name for stream in held.streams() if stream.hub_id == held.hub_id}
                return self._configured | own
        except NoIndex:
            return self._configured


@dataclass(frozen=True, slots=True, kw_only=True)
class Waits:
    """How long a submission waits for the receipt of its descriptor, then for its result."""

    recorded_sec: float = 10.0
    completed_sec: float = 1.0


class Submissions:
    """Accepts queries. ``wake`` notifies the runner; ``streams`` are those that can be queried."""

    def __init__(
        self,
        results: Results,
        *,
        limits: JsonLimits,
        waits: Waits,
        streams: Callable[[], frozenset[str]],
        wake: Callable[[], None],
        runtime: Runtime,
        monotonic: Callable[[], float],
    ) -> None:
        self._results = results
        self._limits = limits
        self._waits = waits
        self._streams = streams
        self._wake = wake
        self._runtime = runtime
        self._monotonic = monotonic

    def read(self, raw: bytes) -> Descriptor:
        """Parse the descriptor of a request; a missing id becomes ``q-`` and 32 hex digits."""
        try:
            value = parse_json(raw, self._limits)
            return normalise(value, query_id_if_missing=self._new_id("q-"))
        except BadDescriptor as error:
            raise Refusal(code_of(error.code), str(error)) from error

    def submit(self, principal: QueryPrincipal, descriptor: Descriptor, now_ms: int) -> Query:
        """Submit a query and return it once its descriptor is recorded, completed if it was
        fast."""
        verify_scope(principal, descriptor.scope, self._streams())
        result_id = self._new_id("r-")
        self._results.add(
            query_id=descriptor.query_id,
            result_id=result_id,
            principal=principal.name,
            descriptor=descriptor.encode(),
            now_ms=now_ms,
        )
        self._wake()
        self._await_recorded(descriptor.query_id, result_id)
        return self._await_end(result_id)

    def _await_recorded(self, query_id: str, result_id: str) -> None:
        query = self._watch(result_id, self._waits.recorded_sec, _is_recorded)
        if query is not None and query.request_event is not None:
            return
        if query is None or self._results.cancel(query_id):
            raise unavailable("the query could not be recorded, and was not run; submit it again")
        raise unavailable(f"the query is not recorded yet; ask for the status of {result_id}")

    def _await_end(self, result_id: str) -> Query:
        query = self._watch(result_id, self._waits.completed_sec, _has_ended)
        if query is None:
            raise unavailable("the query was withdrawn; submit it again")
        return query

    def _watch(
        self, result_id: str, seconds: float, condition: Callable[[Query], bool]
    ) -> Query | None:
        """Poll with increasing intervals, until the condition holds or the time is over."""
        deadline, pause = self._monotonic() + seconds, _FIRST_POLL_SEC
        while True:
            query = self._results.by_result(result_id)
            if query is None or condition(query) or self._monotonic() >= deadline:
                return query
            self._runtime.sleep(pause)
            pause = min(2 * pause, _MAX_POLL_SEC)

    def _new_id(self, prefix: str) -> str:
        return prefix + self._runtime.random(_ID_BYTES).hex()


def _is_recorded(query: Query) -> bool:
    return query.request_event is not None or query.has_ended


def _has_ended(query: Query) -> bool:
    return query.has_ended


@dataclass(frozen=True, slots=True)
class RowPage:
    """A page of rows in canonical JSON; ``total`` is the number of all rows."""

    query: Query
    rows: list[bytes]
    offset: int
    limit: int
    total: int

    @property
    def has_more(self) -> bool:
        return self.offset + len(self.rows) < self.total


class Viewing:
    """Access to queries and results."""

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
        query = _visible(principal, self._results.by_result(result_id))
        if query.state is QueryState.COMPLETED and self._results.is_expired(result_id):
            return replace(query, message=EXPIRED)
        return query

    def descriptor(self, principal: QueryPrincipal, query_id: str) -> Query:
        query = _visible(principal, self._results.by_query(query_id))
        if query.request_event is None:
            raise Refusal(ErrorCode.RESULT_NOT_READY, "the query is not recorded yet; ask again")
        return query

    def completed(self, principal: QueryPrincipal, result_id: str) -> Query:
        """A completed query; otherwise the error says not ready, failed, or expired."""
        query = self.status(principal, result_id)
        if query.state is QueryState.FAILED:
            raise Refusal(
                code_of(query.error_code or "execution_failed"),
                query.message or "the query failed",
            )
        if query.state is not QueryState.COMPLETED:
            raise Refusal(
                ErrorCode.RESULT_NOT_READY, f"the query is {query.state.value}; ask again later"
            )
        if query.message is not None:
            raise Refusal(ErrorCode.QUERY_NOT_FOUND, query.message)
        return query

    def page(self, query: Query, offset: int, limit: int) -> RowPage:
        """Rows of a completed query, limited to ``max_page``."""
        bounded = min(limit, self._max_page)
        rows = self.rows(query)
        return RowPage(query, rows.page(offset, bounded), offset, bounded, rows.count())

    def faults(self, query: Query) -> list[dict[str, Any]]:
        """Events in the wrong stream within the ranges that a query searched (SDR0 3.2.2).

        They are among the rows if they match, so the reader of the rows must know.
        """
        if self._index is None or query.digest is None or not self._index.exists():
            return []
        digest = json.loads(query.digest)
        with snapshot(self._index) as held:
            rows = {(stream.hub_id.hex(), stream.name): stream for stream in held.streams()}
            faults = [
                misplaced(held.db, row, range_["from_seq"], range_["to_seq"])
                for range_ in digest["searched"]
                if (row := rows.get((digest["hub_id"], range_["stream"]))) is not None
            ]
        return [fault.document() for fault in faults if fault.count]

    def rows(self, query: Query) -> RowsFile:
        return RowsFile(self._directory / query.result_id)


def _visible(principal: QueryPrincipal, query: Query | None) -> Query:
    if query is None or not sees(principal, query.principal):
        raise not_found()
    return query
