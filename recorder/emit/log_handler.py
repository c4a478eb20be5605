"""A ``logging.Handler`` that records each log record as an event.

The application never waits for the network. A record goes into a bounded queue; one thread writes
queued records to the durable outbox, another sends them. If the queue is full, the application
waits for at most ``wait_sec``, and not again until there was space. A record that did not fit is
counted, and the count is recorded as an event of type log.dropped.

A client directory belongs to one process. After ``fork()`` the child has neither the threads of the
handler nor access to its outbox, so its records go through a socket to the process that created the
handler. Messages are complete or absent (SOCK_SEQPACKET), and sent when ``send`` returns.
"""

from __future__ import annotations

import errno
import json
import logging
import os
import queue
import select
import socket
import threading
import traceback
import warnings
import weakref
from dataclasses import asdict, dataclass
from typing import Any, Final, NamedTuple

from recorder.emit.emitter import Addressed, Emitter, NoEvent, Observation
from recorder.stream_map import UnknownType
from veen.errors import Malformed, VeenError
from veen.wire.canonical_json import value_to_cbor

LOG_LINE: Final = "log.line"
_OWN_FIELDS: Final = frozenset(
    [*logging.LogRecord("", 0, "", 0, "", None, None).__dict__, "message", "asctime", "taskName"]
)
_NAMED: Final = ("event_type", "subject_id", "origin")
_TEXT_EXPANSION: Final = 4
_BUFFER_BYTES: Final = 4 << 20
_MESSAGE_BYTES: Final = 8 << 20
DROPPED: Final = "log.dropped"
_BATCH: Final = 256
_LONGEST_WAIT_SEC: Final = 30.0
_OWN_LOGGERS: Final = ("veen", "recorder")
_SENDER_THREAD: Final = "veen-send"
_POLL_SEC: Final = 0.1
_FORWARDED_BYTES: Final = 64 << 10
"""The size to which a record is cut that is too large to be forwarded; it fits on every system."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogRule:
    """Overrides for records of a logger and its children, from a level on.

    A field that is None overrides nothing.
    """

    logger: str = ""
    level: int = logging.NOTSET
    event_type: str | None = None
    subject_id: str | None = None
    origin: str | None = None

    def matches(self, record: logging.LogRecord) -> bool:
        is_below = not self.logger or f"{record.name}.".startswith(f"{self.logger}.")
        return is_below and record.levelno >= self.level


@dataclass(frozen=True, slots=True, kw_only=True)
class LogMapping:
    """From log records to observations: the first matching rule applies.

    ``extra`` of a record takes precedence.
    """

    subject_id: str
    origin: str
    event_type: str = LOG_LINE
    rules: tuple[LogRule, ...] = ()

    def observation(self, record: logging.LogRecord) -> Observation:
        payload: dict[str, Any] = {
            "message": _text(record.getMessage()),
            "logger": _text(record.name),
            "level": _text(record.levelname),
            "file": _text(record.pathname),
            "line": record.lineno,
            "process": record.process,
            "thread": _text(record.threadName or ""),
        }
        if record.exc_info and record.exc_info[0] is not None:
            payload["exception"] = _text("".join(traceback.format_exception(*record.exc_info)))
        elif record.exc_text:
            payload["exception"] = _text(record.exc_text)
        if record.stack_info:
            payload["stack"] = _text(record.stack_info)
        extra = {name: _json(value) for name, value in record.__dict__.items() if _is_extra(name)}
        if extra:
            payload["extra"] = extra
        return Observation(
            **self._names(record), payload=payload, event_time=int(record.created * 1000)
        )

    def _names(self, record: logging.LogRecord) -> dict[str, Any]:
        rule = next((rule for rule in self.rules if rule.matches(record)), LogRule())
        return {
            name: record.__dict__.get(name) or getattr(rule, name) or getattr(self, name)
            for name in _NAMED
        }


def cut(observed: Observation, bound: int) -> Observation:
    """Shorten the message of an observation so that it surely fits into ``bound`` bytes."""
    message = observed.payload["message"]
    head = message.encode()[: max(0, bound // _TEXT_EXPANSION - _TEXT_EXPANSION * 32)]
    payload = {
        "message": head.decode(errors="ignore"),
        "level": observed.payload["level"],
        "cut": True,
    }
    return Observation(
        event_type=observed.event_type,
        subject_id=observed.subject_id,
        origin=observed.origin,
        payload=payload,
        event_time=observed.event_time,
    )


def _is_extra(name: str) -> bool:
    return name not in _OWN_FIELDS and name not in _NAMED


def _json(value: Any) -> Any:
    """The value if it is JSON, else its repr."""
    try:
        value_to_cbor(value)
    except Malformed:
        return _text(repr(value))
    return value


def _text(text: str) -> str:
    """Replace lone surrogates, which JSON cannot represent."""
    return text.encode("utf-8", "backslashreplace").decode()


class Forwarded(NamedTuple):
    """A forwarded record.

    ``dropped`` is how many records the sender could not forward before it.
    """

    record: Observation | None
    dropped: int


class RecordTooLarge(Exception):
    """A record that does not fit into one message."""


class ParentGone(VeenError):
    """The process that holds the outbox has ended."""


class Forwarding:
    """A socket pair with one end for the parent and one shared by all children.

    Created before the first fork.
    """

    def __init__(self) -> None:
        self._parent, self._child = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._child.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _BUFFER_BYTES)

    def send(self, record: Observation | None, dropped: int, wait_sec: float) -> bool:
        """In a child: send a record to the parent; False when the socket buffer is full."""
        document = {"record": None if record is None else asdict(record), "dropped": dropped}
        raw = json.dumps(document).encode()
        self._child.settimeout(wait_sec)
        try:
            self._child.send(raw)
        except TimeoutError:
            return False
        except OSError as error:
            if error.errno == errno.EMSGSIZE:
                raise RecordTooLarge from error
            if error.errno in (errno.EAGAIN, errno.ENOBUFS):
                return False
            raise ParentGone(
                "log records of a forked process are not recorded: the process that made the "
                "handler has ended; make the handler after the fork"
            ) from error
        return True

    def receive(self, wait_sec: float) -> Forwarded | None:
        """In the parent: return the next message, or None after ``wait_sec``."""
        if not select.select([self._parent], [], [], wait_sec)[0]:
            return None
        raw = self._parent.recv(_MESSAGE_BYTES)
        if not raw:
            return None
        document = json.loads(raw)
        record = document["record"]
        return Forwarded(Observation(**record) if record else None, document["dropped"])

    def in_child(self) -> None:
        """After a fork, in the child: close the parent's end, so that its closing is noticed."""
        self._parent.close()

    def close(self) -> None:
        self._parent.close()
        self._child.close()


class RecorderHandler(logging.Handler):
    """Handler that records through ``emitter``, which must outlive it.

    The stream map must hold log.dropped and all mapped types.
    """

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
        # Before logging registers this handler, so that an invalid one is never registered.
        for kind in (DROPPED, mapping.event_type, *(rule.event_type for rule in mapping.rules)):
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
        self._reported = 0
        self._is_stuck = False
        self._counting = threading.Lock()
        self._closing, self._received, self._due, self._stored = (
            threading.Event() for _ in range(4)
        )
        self._threads = [
            threading.Thread(target=work, name=f"veen-log-{name}", daemon=True)
            for name, work in (
                ("keep", self._store_all),
                ("send", self._send_all),
                ("receive", self._receive_all),
            )
        ]
        _handlers.add(self)
        for thread in self._threads:
            thread.start()

    def emit(self, record: logging.LogRecord) -> None:
        """Queue a record, except those that result from recording another."""
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
        """Wait until all queued records are in the outbox, for ``close_sec`` at most."""
        if self._is_forked:
            return
        with self._queue.all_tasks_done:
            self._queue.all_tasks_done.wait_for(
                lambda: not self._queue.unfinished_tasks, self._close_sec
            )

    def close(self) -> None:
        """Store all queued records, and send them if the hub answers in time.

        The rest stays in the outbox.
        """
        if self._closing.is_set():
            return
        self._closing.set()
        if self._is_forked:
            if self.dropped > self._reported:
                self._send_to_parent(None, self._close_sec)
        else:
            self._end_threads()
        self._forwarding.close()
        super().close()
        if self.dropped > self._reported:
            warnings.warn(
                f"{self.dropped - self._reported} log records were dropped and that was not "
                "recorded: "
                f"{self.trouble}",
                RuntimeWarning,
                stacklevel=2,
            )

    def after_fork_in_child(self) -> None:
        """Reset what belongs to the parent: threads, the locks they held, and the queue."""
        self._is_forked = True
        self._threads, self._queue = [], queue.Queue(1)
        self._counting = threading.Lock()
        self.dropped = self._reported = 0
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
        except RecordTooLarge:
            is_sent = self._send_to_parent(cut(observed, _FORWARDED_BYTES), wait)
        self._is_stuck = not is_sent
        if not is_sent:
            self._drop()

    def _send_to_parent(self, observed: Observation | None, wait: float) -> bool:
        dropped = self.dropped - self._reported
        try:
            is_sent = self._forwarding.send(observed, dropped, wait)
        except ParentGone as error:
            self.trouble = error
            return False
        if is_sent:
            self._reported += dropped
        return is_sent

    def _receive_all(self) -> None:
        """Receive until closing, and then what children have sent by that time."""
        while True:
            is_last = self._closing.is_set()
            message = self._forwarding.receive(0.0 if is_last else _POLL_SEC)
            if message is not None:
                self._drop(message.dropped)
                if message.record is not None:
                    self._enqueue(message.record)
            elif is_last:
                self._received.set()
                return

    def _end_threads(self) -> None:
        storing, sending, receiving = self._threads
        receiving.join()
        self._due.set()
        storing.join()
        sending.join(self._close_sec)

    def _is_own(self, record: logging.LogRecord) -> bool:
        thread = threading.current_thread()
        is_sending = thread in self._threads or thread.name.startswith(_SENDER_THREAD)
        return is_sending or record.name.partition(".")[0] in _OWN_LOGGERS

    def _drop(self, count: int = 1) -> None:
        with self._counting:
            self.dropped += count

    def _store_all(self) -> None:
        while not (self._received.is_set() and self._queue.empty()):
            batch = self._batch()
            self._store_batch(batch)
            for _ in batch:
                self._queue.task_done()
        self._store_batch([])
        self._stored.set()
        self._due.set()

    def _batch(self) -> list[Observation]:
        """Return queued records; empty when none arrives for a while."""
        try:
            batch = [self._queue.get(timeout=_POLL_SEC)]
        except queue.Empty:
            return []
        while len(batch) < _BATCH:
            try:
                batch.append(self._queue.get_nowait())
            except queue.Empty:
                break
        return batch

    def _store_batch(self, batch: list[Observation]) -> None:
        events = [event for observation in batch for event in self._addressed(observation)]
        dropped = self.dropped
        if dropped > self._reported:
            events.append(self._emitter.address(self._about_dropped(dropped - self._reported)))
        while events:
            try:
                self._emitter.store(events)
            except VeenError as error:
                # Outbox or disk full: sending frees space, and the full queue delays the callers.
                self.trouble = error
                if self._closing.wait(self._retry_sec):
                    self._drop(len(batch))
                    return
            else:
                self._reported = dropped
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
                # The events are in the outbox: a retry, now or after the next start, sends them.
                self.trouble = error
                self._closing.wait(wait)
                wait = min(2 * wait, _LONGEST_WAIT_SEC)
                if not self._closing.is_set():
                    self._due.set()
            if self._stored.is_set():
                return


_handlers: weakref.WeakSet[RecorderHandler] = weakref.WeakSet()


def _after_fork_in_child() -> None:
    for handler in list(_handlers):
        handler.after_fork_in_child()


os.register_at_fork(after_in_child=_after_fork_in_child)
