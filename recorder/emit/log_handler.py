"""A handler for Python's logging that records each log record as an event.

The application never waits for the network. A record goes into a bounded queue; one thread keeps
what is there in the durable outbox, another sends it. If the queue is full, the application waits
for ``wait_sec`` at most, and not again until there was room. A record that found none is counted,
and the count is recorded as an event of type log.dropped.

A forked process forwards its records to the one that made the handler, which has the outbox.
"""

from __future__ import annotations

import logging
import os
import queue
import threading
import warnings
import weakref
from typing import Final

from recorder.emit.emitter import Addressed, Emitter
from recorder.emit.log_forward import Forwarding, ParentGone, TooLarge
from recorder.emit.log_mapping import LogMapping, cut
from recorder.emit.observation import NoEvent, Observation
from recorder.stream_map import UnknownType
from veen.errors import VeenError

DROPPED: Final = "log.dropped"
_BATCH: Final = 256
_LONGEST_WAIT_SEC: Final = 30.0
_OWN_LOGGERS: Final = ("veen", "recorder")
_SENDING: Final = "veen-send"
_LOOK_SEC: Final = 0.1
_FORWARDED_BYTES: Final = 64 << 10
"""What is kept of a record that is too large to be forwarded; every system takes that much."""


class RecorderHandler(logging.Handler):
    """``emitter`` must outlive it; the stream map must hold log.dropped and what is mapped."""

    def __init__(
        self,
        emitter: Emitter,
        mapping: LogMapping,
        *,
        capacity: int = 10_000,
        wait_sec: float = 0.5,
        retry_sec: float = 0.5,
        close_sec: float = 5.0,
    ) -> None:
        # Before logging knows of this handler, so that one that is refused is nowhere.
        for kind in (DROPPED, mapping.event_type, *(one.event_type for one in mapping.rules)):
            if kind is not None:
                emitter.streams.stream_of(kind)
        super().__init__()
        self.dropped = 0
        self.trouble: VeenError | None = None
        self._emitter = emitter
        self._mapping = mapping
        self._wait_sec, self._retry_sec, self._close_sec = wait_sec, retry_sec, close_sec
        self._queue: queue.Queue[Observation] = queue.Queue(capacity)
        self._forwarding = Forwarding()
        self._is_forked = False
        self._told = 0
        self._is_stuck = False
        self._counting = threading.Lock()
        self._closing, self._received, self._due, self._kept = (threading.Event() for _ in range(4))
        self._threads = [
            threading.Thread(target=work, name=f"veen-log-{name}", daemon=True)
            for name, work in (
                ("keep", self._keep_all),
                ("send", self._send_all),
                ("receive", self._receive_all),
            )
        ]
        _handlers.add(self)
        for one in self._threads:
            one.start()

    def emit(self, record: logging.LogRecord) -> None:
        """Take a record, but none of those that come of recording another."""
        if self._is_own(record) or self._closing.is_set():
            return
        try:
            observed = self._mapping.observation(record)
        except Exception:  # noqa: BLE001 - what a record's own arguments raise, as logging does
            self._drop()
            self.handleError(record)
            return
        if self._is_forked:
            self._forward(observed)
        else:
            self._enqueue(observed)

    def flush(self) -> None:
        """Wait until all that was taken is kept, for ``close_sec`` at most."""
        if self._is_forked:
            return
        with self._queue.all_tasks_done:
            self._queue.all_tasks_done.wait_for(
                lambda: not self._queue.unfinished_tasks, self._close_sec
            )

    def close(self) -> None:
        """Keep what was taken, and send it if the hub answers in time; the rest stays kept."""
        if self._closing.is_set():
            return
        self._closing.set()
        if self._is_forked:
            if self.dropped > self._told:
                self._send_to_parent(None, self._close_sec)
        else:
            self._end_threads()
        self._forwarding.close()
        super().close()
        if self.dropped > self._told:
            warnings.warn(
                f"{self.dropped - self._told} log records were dropped and that was not recorded: "
                f"{self.trouble}",
                RuntimeWarning,
                stacklevel=2,
            )

    def after_fork_in_child(self) -> None:
        """Threads, and locks that they held, stay with the parent, and so does the queue."""
        self._is_forked = True
        self._threads, self._queue = [], queue.Queue(1)
        self._counting = threading.Lock()
        self.dropped = self._told = 0
        self._is_stuck = False
        was_closing, self._closing = self._closing.is_set(), threading.Event()
        if was_closing:
            self._closing.set()
        self._forwarding.in_child()

    def _enqueue(self, observed: Observation) -> None:
        try:
            self._queue.put(observed, not self._is_stuck, self._wait_sec)
            self._is_stuck = False
        except queue.Full:
            self._is_stuck = True
            self._drop()

    def _forward(self, observed: Observation) -> None:
        wait = 0.0 if self._is_stuck else self._wait_sec
        try:
            is_sent = self._send_to_parent(observed, wait)
        except TooLarge:
            is_sent = self._send_to_parent(cut(observed, _FORWARDED_BYTES), wait)
        self._is_stuck = not is_sent
        if not is_sent:
            self._drop()

    def _send_to_parent(self, observed: Observation | None, wait: float) -> bool:
        dropped = self.dropped - self._told
        try:
            is_sent = self._forwarding.send(observed, dropped, wait)
        except ParentGone as error:
            self.trouble = error
            return False
        if is_sent:
            self._told += dropped
        return is_sent

    def _receive_all(self) -> None:
        """Until closing, and then what children have sent by that time."""
        while True:
            is_last = self._closing.is_set()
            message = self._forwarding.receive(0.0 if is_last else _LOOK_SEC)
            if message is not None:
                self._drop(message.dropped)
                if message.record is not None:
                    self._enqueue(message.record)
            elif is_last:
                self._received.set()
                return

    def _end_threads(self) -> None:
        keeping, sending, receiving = self._threads
        receiving.join()
        self._due.set()
        keeping.join()
        sending.join(self._close_sec)

    def _is_own(self, record: logging.LogRecord) -> bool:
        thread = threading.current_thread()
        is_sending = thread in self._threads or thread.name.startswith(_SENDING)
        return is_sending or record.name.partition(".")[0] in _OWN_LOGGERS

    def _drop(self, count: int = 1) -> None:
        with self._counting:
            self.dropped += count

    def _keep_all(self) -> None:
        while not (self._received.is_set() and self._queue.empty()):
            batch = self._batch()
            self._keep_batch(batch)
            for _ in batch:
                self._queue.task_done()
        self._keep_batch([])
        self._kept.set()
        self._due.set()

    def _batch(self) -> list[Observation]:
        """At least one record, unless none comes for a while."""
        try:
            found = [self._queue.get(timeout=_LOOK_SEC)]
        except queue.Empty:
            return []
        while len(found) < _BATCH:
            try:
                found.append(self._queue.get_nowait())
            except queue.Empty:
                break
        return found

    def _keep_batch(self, batch: list[Observation]) -> None:
        events = [event for one in batch for event in self._addressed(one)]
        dropped = self.dropped
        if dropped > self._told:
            events.append(self._emitter.address(self._about_dropped(dropped - self._told)))
        while events:
            try:
                self._emitter.keep(events)
            except VeenError as error:
                # Full, or no space: sending makes room, and the queue holds up those who log.
                self.trouble = error
                if self._closing.wait(self._retry_sec):
                    self._drop(len(batch))
                    return
            else:
                self._told = dropped
                self._due.set()
                return

    def _addressed(self, observed: Observation) -> list[Addressed]:
        try:
            return [self._emitter.address(observed)]
        except (NoEvent, UnknownType):
            pass
        try:
            bound = self._emitter.streams.stream_of(observed.event_type).max_payload_bytes
            return [self._emitter.address(cut(observed, bound))]
        except (NoEvent, UnknownType) as error:
            self.trouble = error
            self._drop()
            return []

    def _about_dropped(self, count: int) -> Observation:
        return Observation(
            event_type=DROPPED,
            subject_id=self._mapping.subject_id,
            origin=self._mapping.origin,
            payload={"dropped": count},
        )

    def _send_all(self) -> None:
        wait = self._retry_sec
        while True:
            self._due.wait()
            self._due.clear()
            try:
                self._emitter.flush()
                self.trouble, wait = None, self._retry_sec
            except VeenError as error:
                # The events are kept: another attempt, now or after the next start, sends them.
                self.trouble = error
                self._closing.wait(wait)
                wait = min(2 * wait, _LONGEST_WAIT_SEC)
                if not self._closing.is_set():
                    self._due.set()
            if self._kept.is_set():
                return


_handlers: weakref.WeakSet[RecorderHandler] = weakref.WeakSet()


def _after_fork_in_child() -> None:
    for handler in list(_handlers):
        handler.after_fork_in_child()


os.register_at_fork(after_in_child=_after_fork_in_child)
