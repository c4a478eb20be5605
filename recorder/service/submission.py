"""Submitting a query: normalised, within its scope, recorded before it is run (Query API 7.2)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from recorder.query.descriptor import BadDescriptor, Descriptor, JsonLimits, normalise, parse_json
from recorder.service.principals import verify_scope
from recorder.service.query_state import Query
from recorder.service.refusal import Refusal, code_of, unavailable
from recorder.service.results import Results
from recorder.settings_query import QueryPrincipal
from veen.client.surroundings import Surroundings

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
        surroundings: Surroundings,
        monotonic: Callable[[], float],
    ) -> None:
        self._results = results
        self._limits = limits
        self._waits = waits
        self._streams = streams
        self._wake = wake
        self._around = surroundings
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
        found = self._watch(result_id, self._waits.recorded_sec, _is_recorded)
        if found is not None and found.request_event is not None:
            return
        if found is None or self._results.cancel(query_id):
            raise unavailable("the query could not be recorded, and was not run; submit it again")
        raise unavailable(f"the query is not recorded yet; ask for the status of {result_id}")

    def _await_end(self, result_id: str) -> Query:
        found = self._watch(result_id, self._waits.completed_sec, _has_ended)
        if found is None:
            raise unavailable("the query was withdrawn; submit it again")
        return found

    def _watch(
        self, result_id: str, seconds: float, happened: Callable[[Query], bool]
    ) -> Query | None:
        """Look again and again, less often with time, until it happened or the time is over."""
        deadline, pause = self._monotonic() + seconds, _FIRST_LOOK_SEC
        while True:
            found = self._results.by_result(result_id)
            if found is None or happened(found) or self._monotonic() >= deadline:
                return found
            self._around.sleep(pause)
            pause = min(2 * pause, _LAST_LOOK_SEC)

    def _new_id(self, prefix: str) -> str:
        return prefix + self._around.random(_ID_BYTES).hex()


def _is_recorded(query: Query) -> bool:
    return query.request_event is not None or query.has_ended


def _has_ended(query: Query) -> bool:
    return query.has_ended
