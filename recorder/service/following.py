"""The index follower as a thread of the runner: it reads through the runner's client."""

from __future__ import annotations

import logging
import time
from threading import Event, Thread
from typing import Final

from recorder.checkpoints.retained import pruned
from recorder.checkpoints.run import heads
from recorder.index.follower import Follower
from recorder.index.home import IndexBusy, IndexHome
from recorder.index.opener import opening
from recorder.index.rebuild import create
from recorder.index.writer import writing
from recorder.service.follower_report import ELSEWHERE, Reporter
from recorder.stream_map import StreamMap
from veen.client.client import Client
from veen.client.errors import HubRefused, Unreachable
from veen.client.session import Session
from veen.errors import VeenError
from veen.profile import DEFAULT_PROFILE

_log = logging.getLogger(__name__)
FIRST_PAUSE_SEC: Final = 0.5
MOST_PAUSE_SEC: Final = 60.0
_RETRY_SEC: Final = 1.0
_STEADY_SEC: Final = 60.0
_PLAIN: Final = DEFAULT_PROFILE.profile_id()


class Following:
    """Ends with the runner, and with nothing else: whatever fails, it starts again.

    The first pause is short and each one is twice the one before, until it has run steadily. A hub
    that lies is asked again too: its alarms stay in the index, and queries find them.
    """

    def __init__(
        self,
        client: Client,
        home: IndexHome,
        openers: int,
        reporter: Reporter,
        *,
        streams: StreamMap | None = None,
    ) -> None:
        self._streams = streams
        self._client = client
        self._home = home
        self._openers = openers
        self._reporter = reporter
        self._over = Event()
        self._thread = Thread(target=self._run, name="index", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._over.set()
        self._thread.join()

    def _run(self) -> None:
        pause = FIRST_PAUSE_SEC
        while not self._over.is_set():
            started = time.monotonic()
            try:
                self._reporter.alive()
                self._follow()
            except IndexBusy:
                # Somebody else follows or rebuilds it, and we take over when they end.
                self._reporter.alive(ELSEWHERE)
                self._over.wait(_RETRY_SEC)
            except Unreachable as error:
                self._report(error, _RETRY_SEC)
                self._over.wait(_RETRY_SEC)
            except Exception as error:  # noqa: BLE001 - the thread must outlive every failure
                if time.monotonic() - started > _STEADY_SEC:
                    pause = FIRST_PAUSE_SEC
                self._report(error, pause)
                self._over.wait(pause)
                pause = min(2 * pause, MOST_PAUSE_SEC)
        self._reporter.ended()

    def _report(self, error: Exception, pause: float) -> None:
        told = str(error) or type(error).__name__
        if isinstance(error, VeenError):
            _log.error("the index follower failed and starts again in %g s: %s", pause, told)
        else:
            _log.exception("the index follower failed and starts again in %g s", pause)
        self._reporter.failed(f"{told}; it starts again in {pause:g} s")

    def _is_over(self) -> bool:
        """Asked in every round and for every batch, so it also shows that the thread lives."""
        self._reporter.alive()
        return self._over.is_set()

    def _follow(self) -> None:
        session = self._client.meet()
        _tell_pruned(session)
        keys = session.identity.readers()
        with self._home.locked():
            generation = create(self._home, session.hub.hub_id)
            with (
                opening(keys, session.limits, self._openers) as opener,
                writing(generation) as writer,
            ):
                Follower(self._client, writer, opener, streams=self._streams).run(self._is_over)


def _tell_pruned(session: Session) -> None:
    try:
        infos = [one for one in session.api.streams() if one.profile_id == _PLAIN]
        gone = list(pruned(session, heads(infos)))
    except HubRefused as error:
        _log.warning("whether the hub still holds all of its streams is not told: %s", error)
        return
    for one in gone:
        _log.critical("%s", one.told())
