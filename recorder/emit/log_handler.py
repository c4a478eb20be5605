"""A handler for Python's logging that records each log record as an event.

The application never waits for the network. A record goes into a bounded queue; one thread keeps
what is there in the durable outbox, another sends it. If the queue is full, the application waits
for ``wait_sec`` at most, and not again until there was room. A record that found none is counted,
and the count is recorded as an event of type log.dropped.

A forked process forwards its records to the one that made the handler, which has the outbox.

From a record of Python's logging to an observation.

Log records of forked processes, forwarded to the process that holds the outbox.

A client directory belongs to one process. After ``fork()`` the child has neither the threads of the
handler nor the right to its outbox, so what it logs goes through a socket to the parent, which
records it. Messages are whole or absent (SOCK_SEQPACKET), and sent when ``send`` returns.
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
_CUT_TEXT: Final = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class LogRule:
    """Records of a logger and those below it, from a level on; what is None is left as it is."""

    logger: str = ""
    level: int = logging.NOTSET
    event_type: str | None = None
    subject_id: str | None = None
    origin: str | None = None

    def speaks_of(self, record: logging.LogRecord) -> bool:
        is_below = not self.logger or f"{record.name}.".startswith(f"{self.logger}.")
        return is_below and record.levelno >= self.level


@dataclass(frozen=True, slots=True, kw_only=True)
class LogMapping:
    """The first rule that speaks of a record decides; its own ``extra`` stands above all."""

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
        rule = next((rule for rule in self.rules if rule.speaks_of(record)), LogRule())
        return {
            name: record.__dict__.get(name) or getattr(rule, name) or getattr(self, name)
            for name in _NAMED
        }


def cut(observed: Observation, bound: int) -> Observation:
    """The same event with as much of its message as surely fits."""
    message = observed.payload["message"]
    stored = message.encode()[: max(0, bound // _CUT_TEXT - _CUT_TEXT * 32)]
    payload = {
        "message": stored.decode(errors="ignore"),
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
    """The value where it is JSON; its text where it is not."""
    try:
        value_to_cbor(value)
    except Malformed:
        return _text(repr(value))
    return value


def _text(text: str) -> str:
    """Without halves of signs, which JSON does not have."""
    return text.encode("utf-8", "backslashreplace").decode()


_BUFFER_BYTES: Final = 4 << 20
_MESSAGE_BYTES: Final = 8 << 20


class Forwarded(NamedTuple):
    """``dropped`` is how many records the sender could not forward before this one."""

    record: Observation | None
    dropped: int


class RecordTooLarge(Exception):
    """A record that no message takes."""


class ParentGone(VeenError):
    """The process that holds the outbox has ended."""


class Forwarding:
    """One end for the parent, one that all children share; made before the first fork."""

    def __init__(self) -> None:
        self._parent, self._child = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._child.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _BUFFER_BYTES)

    def send(self, record: Observation | None, dropped: int, wait_sec: float) -> bool:
        """In a child: whether the parent will read it; False where there is no room."""
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
        """In the parent: the next one, or None if there is none for a while."""
        if not select.select([self._parent], [], [], wait_sec)[0]:
            return None
        raw = self._parent.recv(_MESSAGE_BYTES)
        if not raw:
            return None
        document = json.loads(raw)
        record = document["record"]
        return Forwarded(Observation(**record) if record else None, document["dropped"])

    def in_child(self) -> None:
        """After a fork, in the child: with the parent's end open, nobody would see it close."""
        self._parent.close()

    def close(self) -> None:
        self._parent.close()
        self._child.close()


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
                ("keep", self._keep_all),
                ("send", self._send_all),
                ("receive", self._receive_all),
            )
        ]
        _handlers.add(self)
        for thread in self._threads:
            thread.start()

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
        """Threads, and locks that they held, stay with the parent, and so does the queue."""
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
        self._stored.set()
        self._due.set()

    def _batch(self) -> list[Observation]:
        """At least one record, unless none comes for a while."""
        try:
            result = [self._queue.get(timeout=_LOOK_SEC)]
        except queue.Empty:
            return []
        while len(result) < _BATCH:
            try:
                result.append(self._queue.get_nowait())
            except queue.Empty:
                break
        return result

    def _keep_batch(self, batch: list[Observation]) -> None:
        events = [event for observation in batch for event in self._addressed(observation)]
        dropped = self.dropped
        if dropped > self._reported:
            events.append(self._emitter.address(self._about_dropped(dropped - self._reported)))
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
                # The events are kept: another attempt, now or after the next start, sends them.
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
