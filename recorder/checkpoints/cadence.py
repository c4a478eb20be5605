"""When a recorder checkpoint, or an anchor for one, is due: by time and by volume."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from recorder.checkpoints.home import CheckpointName
from veen.recorder_checkpoint import RecorderCheckpoint

_MINUTE: Final = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointCadence:
    """0 is never by that measure."""

    every_minutes: int
    every_events: int

    def due(
        self,
        now: int,
        last: RecorderCheckpoint | None,
        heads: Mapping[str, int],
        waited_sec: float = 0,
    ) -> str | None:
        """Why one is due now, in words, or None. ``heads`` is the last stream_seq of each stream.

        Streams in which nothing has happened need none. ``waited_sec`` is for how long the last one
        has been seen to be the last, by a clock that nobody sets: the date of the last one may lie
        ahead, when the clock ran ahead for a moment.
        """
        events = new_events(last, heads)
        if last is None:
            return "there is none yet"
        if self.every_events and events >= self.every_events:
            return f"{events} events since the last"
        elapsed = max(now - last.created_at, int(waited_sec))
        if self.every_minutes and events and elapsed >= self.every_minutes * _MINUTE:
            return f"{elapsed // _MINUTE} minutes since the last"
        return None


def new_events(last: RecorderCheckpoint | None, heads: Mapping[str, int]) -> int:
    """How many events stand after the last checkpoint, over all streams."""
    ends = {} if last is None else dict(zip(last.names, last.ends, strict=True))
    return sum(
        max(0, seq - (ends[name].last_seq if name in ends else 0)) for name, seq in heads.items()
    )


@dataclass(frozen=True, slots=True)
class Lateness:
    """How far behind anchoring is: checkpoints and seconds beyond what the cadence allows."""

    checkpoints: int
    seconds: int

    @property
    def is_late(self) -> bool:
        return bool(self.checkpoints or self.seconds)


@dataclass(frozen=True, slots=True, kw_only=True)
class AnchorCadence:
    """0 is never by that measure."""

    every_checkpoints: int
    every_minutes: int

    def lateness(self, now: int, waiting: Sequence[CheckpointName]) -> Lateness:
        """Of the checkpoints after the last anchored one, in order of time."""
        if not waiting:
            return Lateness(0, 0)
        over = len(waiting) - self.every_checkpoints + 1 if self.every_checkpoints else 0
        limit = self.every_minutes * _MINUTE
        age = now - waiting[0].created_at - limit + 1 if self.every_minutes else 0
        if self.every_minutes and waiting[0].created_at > now + _MINUTE:
            # Dated ahead, by a clock that was: how long it waits is not known, so it waits no more.
            age = 1
        return Lateness(max(0, over), max(0, age))

    def is_due(self, now: int, waiting: Sequence[CheckpointName]) -> bool:
        return self.lateness(now, waiting).is_late
