"""Running a tail: read what is new, send what was kept, and wait for more."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from recorder.emit.emitter import Emitter
from recorder.emit.tail import Step, Tail
from veen.client.errors import Unreachable
from veen.client.outbox import OutboxFull
from veen.errors import VeenError

_MANY: Final = 1_024
_FIRST_WAIT_MS: Final = 500
_LONGEST_WAIT_MS: Final = 30_000


@dataclass(frozen=True, slots=True)
class Tailed:
    events: int
    landed: int


class TailRun:
    """Reading goes on while the hub does not answer, until the outbox is full."""

    def __init__(self, tail: Tail, emitter: Emitter, tell: Callable[[str], None]) -> None:
        self._tail = tail
        self._emitter = emitter
        self._tell = tell
        self._events = self._landed = 0
        self._wait_ms = self._not_before = 0
        self._gaps = 0
        self.trouble: VeenError | None = None

    def follow(self, sleep: Callable[[float], None], poll_sec: float) -> None:
        """For ever, or until an error that waiting does not cure."""
        while True:
            if self.turn().is_idle:
                sleep(poll_sec)

    def catch_up(self, sleep: Callable[[float], None], poll_sec: float) -> Tailed:
        """Until all that is there was kept and sent; Unreachable once it is kept only."""
        while True:
            is_idle = self.turn().is_idle
            if is_idle and self.trouble is not None:
                self.trouble.add_note(f"{self._emitter.pending()} events wait in the outbox")
                raise self.trouble
            if is_idle and not self._emitter.pending() and self._tail.is_caught_up():
                return Tailed(self._events, self._landed)
            if is_idle:
                sleep(poll_sec)

    def turn(self) -> Step:
        step = self._step()
        self._events += step.events
        if self._tail.gaps > self._gaps:
            self._gaps = self._tail.gaps
            self._tell(f"{self._tail.path}: lines are missing: what was being read is gone")
        is_due = step.is_idle or self._emitter.pending() >= _MANY
        if is_due and self._emitter.clock() >= self._not_before:
            self._flush()
        return step

    def _step(self) -> Step:
        try:
            return self._tail.step()
        except OutboxFull as error:
            if self.trouble is None:
                self._tell(f"waiting: {error}")
            return Step(0, is_idle=True)

    def _flush(self) -> None:
        if not self._emitter.pending():
            return
        try:
            self._landed += self._emitter.flush().landed
        except Unreachable as error:
            if self.trouble is None:
                self._tell(f"kept until the hub answers: {error}")
            self.trouble = error
            self._wait_ms = min(max(2 * self._wait_ms, _FIRST_WAIT_MS), _LONGEST_WAIT_MS)
            self._not_before = self._emitter.clock() + self._wait_ms
        else:
            if self.trouble is not None:
                self._tell("the hub answers again")
            self.trouble, self._wait_ms = None, 0
