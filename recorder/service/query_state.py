"""A submitted query and how far it has come: one row of the service's file (Query API 8.1)."""

from __future__ import annotations

import json
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

COLUMNS: Final = (
    "query_id, result_id, principal, descriptor, submitted, state, engine, owner, attempts, "
    "requests_from, request_event, digest, results_from, result_event, error_code, message"
)


class State(Enum):
    PENDING = "pending"
    RUNNING = "running"
    COMPLETED = "completed"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class RecordRef:
    """Where in the log an event of the service stands."""

    stream: str
    seq: int
    hub_id: str
    receipt_id: str

    def document(self) -> dict[str, Any]:
        return {
            "stream": self.stream,
            "seq": self.seq,
            "hub_id": self.hub_id,
            "receipt_id": self.receipt_id,
        }

    def encode(self) -> str:
        return json.dumps(self.document(), sort_keys=True)


@dataclass(frozen=True, slots=True)
class Query:
    """``descriptor`` and ``digest`` are canonical JSON; ``submitted`` is in milliseconds.

    ``requests_from`` and ``results_from`` are the ends of the two streams before the query or its
    digest was sent: an event of it can stand only after them.
    """

    query_id: str
    result_id: str
    principal: str
    descriptor: bytes
    submitted: int
    state: State
    engine: str | None
    owner: str | None
    attempts: int
    requests_from: int | None
    request_event: RecordRef | None
    digest: bytes | None
    results_from: int | None
    result_event: RecordRef | None
    error_code: str | None
    message: str | None

    @property
    def has_ended(self) -> bool:
        return self.state in (State.COMPLETED, State.FAILED)


def query_of(row: tuple[Any, ...]) -> Query:
    """The query of a row with the columns above."""
    found = list(row)
    found[5] = State(found[5])
    for at in (10, 13):
        found[at] = RecordRef(**json.loads(found[at])) if found[at] else None
    return Query(*found)
