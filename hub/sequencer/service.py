"""The sequencer process, the only writer of a data directory.

It takes whatever requests have arrived, commits their messages as a group with one sync, and
answers them all; requests that arrive meanwhile form the next group (group commit).
"""

from __future__ import annotations

import logging
import os
import socket
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from selectors import EVENT_READ, DefaultSelector
from typing import Any

import cbor2

from hub.admission import Gate, VerifiedMsg
from hub.clock import ClockStepped, HubClock
from hub.disk import DiskWatch
from hub.sequencer import ipc
from hub.sequencer.committer import Committer, NotFound, Outcome, Unavailable
from hub.sequencer.ipc import socket_address
from hub.settings import HubSettings
from hub.storage import identity
from hub.storage.datadir import DataDir, DataDirLock
from hub.storage.log import HubLog, Observer
from veen.captoken import CapToken
from veen.errors import Rejected, Untrusted
from veen.label import stream_id
from veen.log.entry import StreamRecord
from veen.system.durable import NoSpace

_TICK_SEC = 1.0
_log = logging.getLogger(__name__)

Clock = Callable[[], float]


class Sequencer:
    """Holds the lock of the directory while it runs."""

    def __init__(
        self,
        datadir: DataDir,
        settings: HubSettings,
        random: identity.Randomness,
        clock: HubClock | None = None,
    ) -> None:
        self._datadir = datadir
        self._lock = DataDirLock(datadir)
        self._clock = clock or HubClock(settings.clock_step_limit_sec)
        self._observe_clock: Callable[[int, int], None] = lambda _behind, _ahead: None
        keys = identity.load_or_create(datadir, random, self._clock.read())
        log = HubLog(datadir, keys, settings.limits, settings.streams)
        self._disk = DiskWatch(datadir)
        self._committer = Committer(
            log,
            Gate(settings.gated, settings.issuers),
            {stream_id(bound.stream): bound.max_msg_bytes for bound in settings.bounds},
        )
        self._listener = _listen(datadir)
        self._woken, self._wake = os.pipe()
        self._sources = DefaultSelector()
        self._sources.register(self._listener, EVENT_READ)
        self._sources.register(self._woken, EVENT_READ)
        self._stopping = False

    def observe(self, observer: Observer) -> None:
        self._committer.log.observer = observer

    def observe_clock(self, observe: Callable[[int, int], None]) -> None:
        """Set the callback for how far hub time and the clock are ahead; called every second."""
        self._observe_clock = observe

    def stop(self) -> None:
        """End the loop once pending requests are answered; safe in a signal handler."""
        self._stopping = True
        os.write(self._wake, b"x")

    def run(self) -> None:
        """Serve until stopped. A failed sync ends the process by its exception."""
        _log.info("sequencer ready for %s", self._datadir.root)
        next_tick = time.monotonic()
        while not self._stopping or self._pending():
            self._serve_group()
            if time.monotonic() >= next_tick:
                self._tick()
                next_tick = time.monotonic() + _TICK_SEC
        self._close()

    def _tick(self) -> None:
        self._disk.tick(int(time.time()))
        clock = self._clock.read()
        self._observe_clock(self._committer.now(clock) - clock, self._clock.step_ahead_sec)
        if self._clock.step_ahead_sec:
            return
        try:
            self._committer.tick(clock)
        except NoSpace as error:
            self._disk.refused(f"an epoch waits to be closed: {error}")

    def _pending(self) -> bool:
        return any(isinstance(key.fileobj, Connection) for key, _ in self._sources.select(0))

    def _serve_group(self) -> None:
        group: list[tuple[Connection, bytes]] = []
        for key, _ in self._sources.select(_TICK_SEC):
            if isinstance(key.fileobj, Connection):
                self._receive(key.fileobj, group)
            elif key.fileobj is self._listener:
                self._accept()
        submits = [
            (to, ipc.unpack_submit(request)) for to, request in group if request[0] == ipc.SUBMIT
        ]
        if submits:
            self._commit(submits)
        for to, request in group:
            if request[0] != ipc.SUBMIT:
                self._send(to, cbor2.dumps(self._answer(request)))

    def _commit(self, submits: list[tuple[Connection, list[VerifiedMsg]]]) -> None:
        messages = [message for _, batch in submits for message in batch]
        try:
            decided = self._committer.commit(messages, self._clock.now())
            self._note_room(decided)
        except ClockStepped as error:
            decided = [Unavailable(str(error)) for _ in messages]
        outcomes = iter(decided)
        for to, batch in submits:
            self._send(to, ipc.pack_outcomes([next(outcomes) for _ in batch]))

    def _note_room(self, outcomes: list[Outcome]) -> None:
        refusal = next((outcome for outcome in outcomes if isinstance(outcome, Unavailable)), None)
        if refusal is not None:
            self._disk.refused(str(refusal))
        elif self._disk.refusal is not None and any(isinstance(item, bytes) for item in outcomes):
            self._disk.written()

    def _answer(self, request: bytes) -> list[Any]:
        """["ok", value], or the name of an error and its message."""
        try:
            return ["ok", self._perform(request[0], ipc.unpack(request))]
        except Rejected as refusal:
            return ["rejected", ipc.rejection(refusal)]
        except NoSpace as error:
            self._disk.refused(str(error))
            return [type(error).__name__, str(error)]
        except (NotFound, Untrusted, ClockStepped) as error:
            return [type(error).__name__, str(error)]

    def _perform(self, kind: int, body: Any) -> Any:
        if kind == ipc.STATUS:
            return self._status()
        clock = self._clock.now()
        if kind == ipc.AUTHORIZE:
            return list(self._committer.authorize(CapToken.decode(body), clock))
        if kind == ipc.REGISTER:
            return self._committer.register(StreamRecord.decode(body), clock)
        if kind == ipc.CHECKPOINT:
            return self._committer.checkpoint(body[0], body[1], clock).encode()
        profile_id, force = body
        return self._committer.recorder_checkpoint(profile_id, clock, force=force).encode()

    def _status(self) -> dict[str, Any]:
        """The clock and hub time, which a clock that stepped ahead does not move."""
        clock, ahead = self._clock.read(), self._clock.step_ahead_sec
        hub_ts = self._committer.now(clock - ahead)
        return {
            "hub_ts": hub_ts,
            "clock": clock,
            "clock_step_ahead_sec": ahead,
            "no_room": self._disk.refusal,
        }

    def _send(self, to: Connection, answer: bytes) -> None:
        """Send an answer; if the worker has died, its client retries."""
        try:
            to.send_bytes(answer)
        except OSError:
            self._drop(to)

    def _drop(self, connection: Connection) -> None:
        self._sources.unregister(connection)
        connection.close()

    def _receive(self, source: Connection, group: list[tuple[Connection, bytes]]) -> None:
        try:
            group.append((source, source.recv_bytes(ipc.MAX_REQUEST_BYTES)))
        except (EOFError, ConnectionError):
            self._drop(source)

    def _accept(self) -> None:
        accepted, _ = self._listener.accept()
        self._sources.register(Connection(accepted.detach()), EVENT_READ)

    def _close(self) -> None:
        for key in list(self._sources.get_map().values()):
            if isinstance(key.fileobj, Connection):
                key.fileobj.close()
        self._sources.close()
        self._listener.close()
        self._datadir.socket.unlink(missing_ok=True)
        self._committer.log.close()
        self._lock.release()


def _listen(datadir: DataDir) -> socket.socket:
    datadir.socket.unlink(missing_ok=True)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    with socket_address(datadir) as address:
        listener.bind(address)
    datadir.socket.chmod(0o600)
    listener.listen(128)
    return listener
