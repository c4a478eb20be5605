"""The index follower as a thread of the runner: it reads through the runner's client."""

from __future__ import annotations

import logging
from threading import Event, Thread

from recorder.index.follower import Follower
from recorder.index.home import IndexBusy, IndexHome
from recorder.index.opener import opening
from recorder.index.rebuild import create
from recorder.index.writer import writing
from veen.client.client import Client
from veen.client.errors import Unreachable
from veen.errors import VeenError

_log = logging.getLogger(__name__)
_RETRY_SEC = 1.0


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
        keys = session.identity.readers()
        with self._home.locked():
            generation = create(self._home, session.hub.hub_id)
            with (
                opening(keys, session.limits, self._openers) as opener,
                writing(generation) as writer,
            ):
                Follower(self._client, writer, opener).run(self._over.is_set)
