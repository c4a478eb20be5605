"""What is still to be done for an anchor: tried so often, failed so, tried again then.

A task ends with its anchor. That it failed before is counted for ever.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum
from typing import Final

from veen.errors import VeenError
from veen.schema import Bytes32, Version
from veen.wire import WireMap

_FIRST_WAIT_SEC: Final = 30
_LONGEST_WAIT_SEC: Final = 3_600
_MAX_ERROR_CHARS: Final = 500


class State(Enum):
    """``UNSTORED``: published, and on its way to where its checkpoint lies."""

    PENDING = "pending"
    FAILED = "failed"
    UNSTORED = "unstored"


@dataclass(frozen=True, slots=True, kw_only=True)
class AnchorTask(WireMap):
    """``next_try`` is in seconds; ``anchor_ref`` is there once it was published."""

    ver: Version = 1
    checkpoint_id: Bytes32
    created_at: int
    kind: str
    asked_at: int
    attempts: int = 0
    next_try: int = 0
    last_error: str | None = None
    anchor_ref: bytes | None = None

    @property
    def state(self) -> State:
        if self.anchor_ref is not None:
            return State.UNSTORED
        return State.FAILED if self.attempts else State.PENDING

    @property
    def file(self) -> str:
        return f"{self.created_at:020d}-{self.checkpoint_id.hex()}-{self.kind}.cbor"

    def failed(self, error: VeenError, now: int) -> AnchorTask:
        """Tried again later, each time twice as late, for ever."""
        wait = min(_LONGEST_WAIT_SEC, _FIRST_WAIT_SEC << min(self.attempts, 16))
        return replace(
            self,
            attempts=self.attempts + 1,
            next_try=now + wait,
            last_error=str(error)[:_MAX_ERROR_CHARS],
        )

    def published(self, anchor_ref: bytes) -> AnchorTask:
        return replace(self, anchor_ref=anchor_ref, next_try=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class AnchorFailures(WireMap):
    """All failures there ever were, and the last of them; ``last_at`` is in seconds."""

    ver: Version = 1
    count: int = 0
    last_at: int | None = None
    last_error: str | None = None

    def with_one(self, error: VeenError, now: int) -> AnchorFailures:
        told = str(error)[:_MAX_ERROR_CHARS]
        return replace(self, count=self.count + 1, last_at=now, last_error=told)
