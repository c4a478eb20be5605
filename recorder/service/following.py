"""The index follower as a thread of the runner: it reads through the runner's client."""

from __future__ import annotations

import logging
from threading import Event, Thread
from typing import Final

from recorder.checkpoints.retained import pruned
from recorder.checkpoints.run import heads
from recorder.index.follower import Follower
from recorder.index.home import IndexBusy, IndexHome
from recorder.index.opener import opening
from recorder.index.rebuild import create
from recorder.index.writer import writing
from veen.client.client import Client
from veen.client.errors import HubRefused, Unreachable
from veen.client.session import Session
from veen.errors import VeenError
from veen.profile import DEFAULT_PROFILE

_log = logging.getLogger(__name__)
_RETRY_SEC: Final = 1.0
_PLAIN: Final = DEFAULT_PROFILE.profile_id()


class Following:
    """Ends with the runner. A hub that lies ends it too, and then queries find an alarm."""

    def __init__(self, client: Client, home: IndexHome, openers: int) -> None:
        self._client = client
        self._home = home
        self._openers = openers
        self._over = Event()
        self._thread = Thread(target=self._run, name="index", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._over.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._over.is_set():
            try:
                self._follow()
            except Unreachable as error:
                _log.warning("the index waits for the hub: %s", error)
                self._over.wait(_RETRY_SEC)
            except IndexBusy:
                # Somebody else follows or rebuilds it, and we take over when they end.
                self._over.wait(_RETRY_SEC)
            except VeenError:
                _log.exception("the index follows no more")
                return

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
                Follower(self._client, writer, opener).run(self._over.is_set)


def _tell_pruned(session: Session) -> None:
    try:
        infos = [one for one in session.api.streams() if one.profile_id == _PLAIN]
        gone = list(pruned(session, heads(infos)))
    except HubRefused as error:
        _log.warning("whether the hub still holds all of its streams is not told: %s", error)
        return
    for one in gone:
        _log.critical("%s", one.told())
