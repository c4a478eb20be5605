"""Who may ask the query service, for which streams, and whose results they see (Query API 7.1).

Which streams can be queried: those of the configuration, and those of our hub in the index.

Streams of other hubs are in the index too, as far as their events were imported. No checkpoint of
ours speaks of them: they serve to run a query of the other zone again.

Submitting a query: normalised, within its scope, recorded before it is run (Query API 7.2).

What a principal may see of queries and results: its own, or all (Query API 7.3 to 7.5).
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
from recorder.query.descriptor import BadDescriptor, Descriptor, JsonLimits, normalise, parse_json
from recorder.service.database import Query, QueryState, Results
from recorder.service.errors import ErrorCode, Refusal, code_of, not_found, unavailable
from recorder.service.execute import RowsFile
from recorder.settings import AUDITOR, SUBMITTER, QueryPrincipal, RecorderSettings, refuse_unmapped
from veen.digest import h
from veen.keystore.card import read_card
from veen.keystore.directory import ClientDir
from veen.system.environment import Runtime

_NONE: Final = b""


class Principals:
    def __init__(self, principals: Iterable[QueryPrincipal]) -> None:
        self._all = tuple(principals)
        refuse_unmapped(self._all)
        self._identities = {item.name: _identity(item) for item in self._all}

    def identity(self, principal: QueryPrincipal) -> bytes:
        """The VEEN identity of a principal: its own key, or that of its client directory."""
        return self._identities[principal.name]

    def by_name(self, name: str) -> QueryPrincipal | None:
        return next((item for item in self._all if item.name == name), None)

    def key_of(self, name: str) -> bytes | None:
        by_name = self.by_name(name)
        return by_name.public_key if by_name else None

    def by_token(self, token: str) -> QueryPrincipal | None:
        """Every principal is compared, so that time does not tell which one came close."""
        digest = h(token.encode("utf-8", "surrogateescape"))
        matching = [
            item for item in self._all if hmac.compare_digest(item.token_sha256 or _NONE, digest)
        ]
        return matching[0] if matching else None


def _identity(principal: QueryPrincipal) -> bytes:
    if principal.public_key is not None:
        return principal.public_key
    assert principal.client is not None  # noqa: S101 - refused before
    return read_card(ClientDir(principal.client).card).client_id


def sees(principal: QueryPrincipal, submitter: str) -> bool:
    """Whether the queries and results of a submitter are shown to a principal."""
    return principal.name == submitter or AUDITOR in principal.roles


def verify_scope(principal: QueryPrincipal, scope: Sequence[str], known: frozenset[str]) -> None:
    """Refuse unless every stream is there and the principal's; both have one answer."""
    if SUBMITTER not in principal.roles:
        raise Refusal(ErrorCode.FORBIDDEN_SCOPE, "your roles do not submit queries")
    for stream in scope:
        if stream not in known or not _may_read(principal, stream):
            raise Refusal(
                ErrorCode.FORBIDDEN_SCOPE,
                f"{stream!r} is no stream that you may query; name streams one by one",
            )


def _may_read(principal: QueryPrincipal, stream: str) -> bool:
    return any(fnmatchcase(stream, pattern) for pattern in principal.scopes)


class ServiceStreams:
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


_ID_BYTES: Final = 16
_FIRST_LOOK_SEC: Final = 0.002
_LAST_LOOK_SEC: Final = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class Waits:
    """How long a submission waits: for the receipt of its descriptor, then for its result."""

    recorded_sec: float = 10.0
    completed_sec: float = 1.0


class Submissions:
    """``wake`` tells the runner that there is work; ``streams`` are those that can be queried."""

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
        self._around = runtime
        self._monotonic = monotonic

    def read(self, raw: bytes) -> Descriptor:
        """The descriptor of a request; an id that it lacks is ``q-`` and 32 hex digits."""
        try:
            value = parse_json(raw, self._limits)
            return normalise(value, query_id_if_missing=self._new_id("q-"))
        except BadDescriptor as error:
            raise Refusal(code_of(error.code), str(error)) from error

    def submit(self, principal: QueryPrincipal, descriptor: Descriptor, now_ms: int) -> Query:
        """The query as it stands once its descriptor is in the log, with its end if it was fast."""
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
        result = self._watch(result_id, self._waits.recorded_sec, _is_recorded)
        if result is not None and result.request_event is not None:
            return
        if result is None or self._results.cancel(query_id):
            raise unavailable("the query could not be recorded, and was not run; submit it again")
        raise unavailable(f"the query is not recorded yet; ask for the status of {result_id}")

    def _await_end(self, result_id: str) -> Query:
        result = self._watch(result_id, self._waits.completed_sec, _has_ended)
        if result is None:
            raise unavailable("the query was withdrawn; submit it again")
        return result

    def _watch(
        self, result_id: str, seconds: float, happened: Callable[[Query], bool]
    ) -> Query | None:
        """Look again and again, less often with time, until it happened or the time is over."""
        deadline, pause = self._monotonic() + seconds, _FIRST_LOOK_SEC
        while True:
            by_result = self._results.by_result(result_id)
            if by_result is None or happened(by_result) or self._monotonic() >= deadline:
                return by_result
            self._around.sleep(pause)
            pause = min(2 * pause, _LAST_LOOK_SEC)

    def _new_id(self, prefix: str) -> str:
        return prefix + self._around.random(_ID_BYTES).hex()


def _is_recorded(query: Query) -> bool:
    return query.request_event is not None or query.has_ended


def _has_ended(query: Query) -> bool:
    return query.has_ended


EXPIRED: Final = (
    "the rows of this result are kept no longer; its digest is recorded: run the query again, or "
    "replay its package"
)
_RESULT_ID: Final = re.compile(r"r-[0-9a-f]{32}")


@dataclass(frozen=True, slots=True)
class RowPage:
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
        result = _shown(principal, self._results.by_result(result_id))
        if result.state is QueryState.COMPLETED and self._results.is_expired(result_id):
            return replace(result, message=EXPIRED)
        return result

    def descriptor(self, principal: QueryPrincipal, query_id: str) -> Query:
        result = _shown(principal, self._results.by_query(query_id))
        if result.request_event is None:
            raise Refusal(ErrorCode.RESULT_NOT_READY, "the query is not recorded yet; ask again")
        return result

    def completed(self, principal: QueryPrincipal, result_id: str) -> Query:
        """A query with its result; one without says why: not ready, failed, or expired."""
        status = self.status(principal, result_id)
        if status.state is QueryState.FAILED:
            raise Refusal(
                code_of(status.error_code or "execution_failed"),
                status.message or "the query failed",
            )
        if status.state is not QueryState.COMPLETED:
            raise Refusal(
                ErrorCode.RESULT_NOT_READY, f"the query is {status.state.value}; ask again later"
            )
        if status.message is not None:
            raise Refusal(ErrorCode.QUERY_NOT_FOUND, status.message)
        return status

    def page(self, query: Query, offset: int, limit: int) -> RowPage:
        """Rows of a completed query; more than the bound at once is cut to it."""
        bounded = min(limit, self._max_page)
        rows = self.rows(query)
        return RowPage(query, rows.page(offset, bounded), offset, bounded, rows.count())

    def faults(self, query: Query) -> list[dict[str, Any]]:
        """Of what a completed query searched: events that stand in the wrong stream (SDR0 3.2.2).

        They are among the rows if they match; who reads them should know.
        """
        if self._index is None or query.digest is None or not self._index.exists():
            return []
        digest = json.loads(query.digest)
        with snapshot(self._index) as held:
            rows = {(stream.hub_id.hex(), stream.name): stream for stream in held.streams()}
            misplaceds = [
                misplaced(held.db, row, item["from_seq"], item["to_seq"])
                for item in digest["searched"]
                if (row := rows.get((digest["hub_id"], item["stream"]))) is not None
            ]
        return [misplaced.document() for misplaced in misplaceds if misplaced.count]

    def rows(self, query: Query) -> RowsFile:
        return RowsFile(self._directory / query.result_id)


def _shown(principal: QueryPrincipal, query: Query | None) -> Query:
    if query is None or not sees(principal, query.principal):
        raise not_found()
    return query
