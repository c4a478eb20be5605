"""One part of a zone under supervision: started when what it needs is up, and started again."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from cli.zone_child import Child
from cli.zone_logs import last_words
from cli.zone_process import Born, below, born, end
from cli.zone_services import Instance, Service
from cli.zone_state import Running, Unstarted
from veen.errors import VeenError

FIRST_DELAY_SEC: Final = 1.0
LONGEST_DELAY_SEC: Final = 300.0
LIMIT: Final = 5
"""After so many ends in a row a part counts as failing; it is still tried at the longest delay."""

STABLE_SEC: Final = 300.0
"""A part that has been ready for so long has recovered: the next end counts as the first."""

_LEFT_SEC: Final = 10.0
_ASK_SEC: Final = 0.5

Launch = Callable[[Service], "subprocess.Popen[bytes]"]


def delay_sec(failures: int) -> float:
    """How long to wait before the next start, after so many ends in a row."""
    if failures >= LIMIT:
        return LONGEST_DELAY_SEC
    return min(FIRST_DELAY_SEC * 2.0 ** (failures - 1), LONGEST_DELAY_SEC)


class Part:
    """``needs`` are up before it is started; when one of them ends later, it goes on.

    ``prepare`` is done before each start. A part that runs ``once`` is up when it has ended well.
    Times are those of a monotonic clock that the caller reads.
    """

    def __init__(
        self,
        service: Service,
        log: Path,
        *,
        needs: Sequence[Part] = (),
        prepare: Callable[[], None] = lambda: None,
        once: bool = False,
    ) -> None:
        self.service = service
        self.log = log
        self.needs = tuple(needs)
        self.process: subprocess.Popen[bytes] | None = None
        self.is_up = False
        self.was_up = False
        self.is_resting = False
        self.restarts = 0
        self.failures = 0
        self.trouble = ""
        self._prepare = prepare
        self._once = once
        self._identity: Born | None = None
        self._due = 0.0
        self._began = 0.0
        self._asked = 0.0
        self._instance: Instance | None = None

    @property
    def name(self) -> str:
        return self.service.name

    @property
    def is_failing(self) -> bool:
        return self.failures >= LIMIT

    @property
    def is_settled(self) -> bool:
        """Whether waiting a little longer would change nothing."""
        return self.is_up or self.is_failing or any(one.is_blocked for one in self.needs)

    @property
    def is_waiting(self) -> bool:
        """Whether it has not been started yet, for what it needs is not up."""
        return self._identity is None and not self.failures

    @property
    def is_blocked(self) -> bool:
        return not self.is_up and self.is_settled

    def state(self) -> Running | None:
        """As it is written down; nothing of a part that never ran or is to run once and did not
        fail.
        """
        is_quiet = self._once and not self.failures
        if self._identity is None or is_quiet or self.is_resting:
            return None
        found = (self.is_up, self.restarts, self.is_failing, self.trouble)
        return Running(self.name, self._identity, str(self.log), *found)

    def unstarted(self) -> Unstarted | None:
        """Why there was never a process of it, where that was tried."""
        if self._identity is not None or not self.failures:
            return None
        return Unstarted(self.name, self.is_failing, self.trouble)

    def look(self, now: float, launch: Launch) -> str | None:
        """Do what is due; what has changed, in words."""
        if self.process is None:
            is_due = not (self.is_resting or (self._once and self.is_up)) and now >= self._due
            return self._start(now, launch) if is_due and self._may_start() else None
        code = self.process.poll()
        if code is not None:
            return self._ended(self.process.pid, code, now)
        if not self.is_up:
            return self._ask(now)
        if self.failures and now > self._began + STABLE_SEC:
            self.failures, self.trouble = 0, ""
            return f"{self.name}: has run for {STABLE_SEC:.0f} s and counts as recovered"
        return None

    def rest(self) -> None:
        """Stop it until ``wake``."""
        self.is_resting, self.is_up = True, False
        self.release()

    def wake(self) -> None:
        self.is_resting, self._due = False, 0.0

    def child(self) -> Child | None:
        return None if self.process is None else Child(self.service, self.process)

    def release(self) -> None:
        """Its process has been stopped by others."""
        self.process = None

    def _may_start(self) -> bool:
        return all(one.is_up for one in self.needs)

    def _start(self, now: float, launch: Launch) -> str | None:
        try:
            self._prepare()
            self.process = launch(self.service)
        except (VeenError, OSError) as error:
            return self._failed(f"{self.name} cannot be started: {error}", now)
        self._began, self._asked = now, now - _ASK_SEC
        self._identity = born(self.process.pid) or Born(self.process.pid, 0)
        self._instance = Instance(self._identity, time.time())
        if not self.failures:
            return f"{self.name}: started"
        self.restarts += 1
        return f"{self.name}: started again, restart {self.restarts}"

    def _ask(self, now: float) -> str | None:
        if self._once or now < self._asked + _ASK_SEC:
            return None
        self._asked = now
        if not self.service.is_ready(self._instance):
            return None
        self.is_up = self.was_up = True
        took, self._began = now - self._began, now
        return f"{self.name}: ready after {took:.1f} s"

    def _ended(self, pid: int, code: int, now: float) -> str:
        self.process = None
        # What it has started holds its ports and files, and would work beside the next one.
        end(below(os.getpid(), session=pid), _LEFT_SEC)
        if self._once and code == 0:
            self.is_up, self.failures, self.trouble = True, 0, ""
            return f"{self.name}: done after {now - self._began:.1f} s"
        self.is_up = False
        return self._failed(f"{self.name} ended with {code}: {last_words(self.log)}", now)

    def _failed(self, trouble: str, now: float) -> str:
        self.failures += 1
        self.trouble = trouble
        delay = delay_sec(self.failures)
        self._due = now + delay
        if self.failures == LIMIT:
            again = f"it ended {LIMIT} times in a row; only every {delay:.0f} s from now on"
        else:
            again = f"started again in {delay:.0f} s"
        return f"{trouble}; {again}"
