"""What the runner records: descriptors before they run, digests once they have, and audits.

After any failure nothing new is sent until it is known what became of what was.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Sequence
from typing import Any, Final

from recorder.service.audit import Audits
from recorder.service.query_state import Query
from recorder.service.recording import RESULT, SUBMITTED, Recording
from recorder.service.results import Results
from recorder.settings_query import QueryPrincipal
from veen.errors import VeenError

_AUDITS_AT_ONCE: Final = 500
_log = logging.getLogger(__name__)


class Bookkeeping:
    def __init__(
        self,
        results: Results,
        audits: Audits,
        recording: Recording,
        *,
        principal_of: Callable[[str], QueryPrincipal | None],
        clock_ms: Callable[[], int],
    ) -> None:
        self._results = results
        self._audits = audits
        self._recording = recording
        self._principal_of = principal_of
        self._clock_ms = clock_ms
        self._is_settled = False

    def settle(self) -> bool:
        """Find out what became of what was sent before; False while that cannot be known."""
        if self._is_settled:
            return True
        try:
            self._recording.settle()
            self._settle_requests()
            self._settle_digests()
        except VeenError as error:
            _log.warning("nothing is recorded for now: %s", error)
            return False
        self._is_settled = True
        return True

    def refuse_new(self) -> None:
        """Let go of queries of which nothing was sent: whoever submitted them is told so."""
        for query in self._results.unrecorded():
            self._results.cancel(query.query_id)

    def record_requests(self) -> None:
        waiting = self._results.unrecorded()
        if not waiting:
            return
        try:
            self._recording.verify_reachable()
        except VeenError as error:
            _log.warning("queries are refused: %s", error)
            self.refuse_new()
            return
        after = self._results.last_seq("request_event")
        self._record_requests([
            one for one in waiting if self._results.begin_recording(one.query_id, after)
        ])  # fmt: skip

    def record_digests(self) -> list[Query]:
        """Those of all results on disk that are not recorded yet; the queries that this ended."""
        waiting = self._results.materialised_only()
        if not waiting:
            return []
        events = [
            self._recording.observed(
                RESULT, self._recording.subject_id, json.loads(one.digest or b""), self._clock_ms()
            )
            for one in waiting
        ]
        ended = []
        with self._unsettling():
            for one, place in zip(waiting, self._recording.record(events), strict=True):
                self._results.completed(one.query_id, place, self._clock_ms())
                ended.append(one)
        return ended

    def record_audits(self) -> None:
        self._audits.settle_counts(self._clock_ms())
        while batch := self._audits.next_batch(_AUDITS_AT_ONCE):
            self._recording.keep_audits(batch)
            self._audits.end_batch(batch)
        with self._unsettling():
            self._recording.settle()

    def _record_requests(self, waiting: Sequence[Query]) -> None:
        if not waiting:
            return
        events = [
            self._recording.observed(
                SUBMITTED, self._subject(one), json.loads(one.descriptor), one.submitted
            )
            for one in waiting
        ]
        with self._unsettling():
            for one, place in zip(waiting, self._recording.record(events), strict=True):
                self._results.recorded(one.query_id, place)

    def _settle_requests(self) -> None:
        """What is not in the log by now never will be: the outbox is empty."""
        waiting = self._results.half_recorded()
        if not waiting:
            return
        after = min(one.requests_from or 0 for one in waiting)
        found = self._recording.recorded_since(SUBMITTED, after, _name("query_id"))
        for one in waiting:
            if one.query_id in found:
                self._results.recorded(one.query_id, found[one.query_id])
            else:
                self._results.drop(one.query_id)

    def _settle_digests(self) -> None:
        waiting = self._results.materialised_only()
        if not waiting:
            return
        after = min(one.results_from or 0 for one in waiting)
        found = self._recording.recorded_since(RESULT, after, _name("result_id"))
        for one in waiting:
            if one.result_id in found:
                self._results.completed(one.query_id, found[one.result_id], self._clock_ms())

    def _subject(self, query: Query) -> str:
        principal = self._principal_of(query.principal)
        return principal.subject_id if principal else query.principal

    def _unsettling(self) -> _Unsettling:
        return _Unsettling(self._unsettle)

    def _unsettle(self, error: VeenError) -> None:
        self._is_settled = False
        _log.warning("the hub did not record: %s", error)


class _Unsettling:
    """A failure within leaves it open what was recorded; it is found out later."""

    def __init__(self, failed: Callable[[VeenError], None]) -> None:
        self._failed = failed

    def __enter__(self) -> None:
        return None

    def __exit__(self, _: object, error: BaseException | None, __: object) -> bool:
        if not isinstance(error, VeenError):
            return False
        self._failed(error)
        return True


def _name(key: str) -> Callable[[Any], str | None]:
    def name_of(payload: Any) -> str | None:
        found = payload.get(key) if isinstance(payload, dict) else None
        return found if isinstance(found, str) else None

    return name_of
