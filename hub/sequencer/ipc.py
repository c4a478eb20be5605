"""The protocol between HTTP workers and the sequencer over a Unix socket, and its client.

Both are processes of one hub. A request is a byte for its kind and a body; an answer is a body.
Bodies are CBOR, except for submits, whose messages are packed for speed. ``SequencerClient`` has a
connection per thread; ``QueueBound`` bounds the number of messages that wait.
"""

from __future__ import annotations

import os
import socket
import struct
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from multiprocessing.connection import Connection
from typing import Any, Final, NamedTuple, cast

import cbor2

from hub.admission import VerifiedMsg
from hub.sequencer.committer import NotFound, Outcome, Unavailable
from hub.storage.datadir import DataDir
from hub.storage.index import TokenRow
from veen.captoken import CapToken
from veen.checkpoint import Checkpoint
from veen.errors import Failure, Rejected, Untrusted
from veen.log.entry import StreamRecord
from veen.recorder_checkpoint import RecorderCheckpoint

SUBMIT: Final = 1
AUTHORIZE: Final = 2
REGISTER: Final = 3
CHECKPOINT: Final = 4
STATUS: Final = 5
RECORDER_CHECKPOINT: Final = 6
MAX_REQUEST_BYTES: Final = 1 << 30
_HEAD: Final = struct.Struct(">32s32s32s32s32s?QQI")
_NO_AUTH_REF: Final = bytes(32)


@contextmanager
def socket_address(datadir: DataDir) -> Iterator[str]:
    """The address of the sequencer's socket through /proc: a path may exceed the 107 bytes."""
    handle = os.open(datadir.run, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{handle}/{datadir.socket.name}"
    finally:
        os.close(handle)


def pack(kind: int, body: Any) -> bytes:
    return bytes([kind]) + cbor2.dumps(body)


def unpack(request: bytes) -> Any:
    return cbor2.loads(request[1:])


def pack_submit(messages: Sequence[VerifiedMsg]) -> bytes:
    parts = [bytes([SUBMIT])]
    for raw, label, profile_id, client_id, seq, prev_ack, auth_ref, leaf in messages:
        head = _HEAD.pack(
            label, profile_id, client_id, leaf, auth_ref or _NO_AUTH_REF, auth_ref is not None,
            seq, prev_ack, len(raw),
        )  # fmt: skip
        parts += (head, raw)
    return b"".join(parts)


def unpack_submit(request: bytes) -> list[VerifiedMsg]:
    at, messages = 1, []
    while at < len(request):
        label, profile_id, client_id, leaf, auth_ref, has_auth_ref, seq, prev_ack, size = (
            _HEAD.unpack_from(request, at)
        )
        at += _HEAD.size + size
        messages.append(
            VerifiedMsg(
                request[at - size : at], label, profile_id, client_id, seq, prev_ack,
                auth_ref if has_auth_ref else None, leaf,
            )
        )  # fmt: skip
    return messages


def pack_outcomes(outcomes: Sequence[Outcome]) -> bytes:
    """Receipts as bytes, rejections as lists, and the reasons of the unavailable as text."""
    return cbor2.dumps(
        [outcome if type(outcome) is bytes else _pack_refusal(outcome) for outcome in outcomes]
    )


def unpack_outcomes(answer: bytes) -> list[Outcome]:
    return [item if type(item) is bytes else _unpack_refusal(item) for item in cbor2.loads(answer)]


def rejection(refusal: Rejected) -> list[Any]:
    return [refusal.failure.name, refusal.message, refusal.stream_seq, refusal.retry_after]


def rejected(parts: list[Any]) -> Rejected:
    name, message, stream_seq, retry_after = parts
    return Rejected(Failure[name], message, stream_seq=stream_seq, retry_after=retry_after)


def _pack_refusal(outcome: Outcome) -> list[Any] | str:
    return rejection(outcome) if isinstance(outcome, Rejected) else str(outcome)


def _unpack_refusal(item: Any) -> Outcome:
    return Unavailable(item) if isinstance(item, str) else rejected(item)


class HubTimes(NamedTuple):
    """``clock_step_ahead_sec`` is not 0 while messages are refused for a clock that stepped;
    ``no_room`` says why they are refused for a full disk.
    """

    hub_ts: int
    clock: int
    clock_step_ahead_sec: int
    no_room: str | None

    @property
    def ahead_of_clock_sec(self) -> int:
        """Seconds for which hub time will stand still."""
        return max(0, self.hub_ts - self.clock)


class QueueBound:
    """The number of messages of a worker that wait for the sequencer. Thread-safe."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._waiting = 0
        self._guard = threading.Lock()

    def take(self, count: int) -> None:
        """Count messages that will wait, or raise Unavailable if there would be too many."""
        with self._guard:
            if self._waiting and self._waiting + count > self._limit:
                raise Unavailable(f"the queue is full: {self._waiting} messages are waiting")
            self._waiting += count

    def release(self, count: int) -> None:
        with self._guard:
            self._waiting -= count

    @contextmanager
    def reserve(self, count: int) -> Iterator[None]:
        self.take(count)
        try:
            yield
        finally:
            self.release(count)


class SequencerClient:
    """A thread-safe client; messages beyond ``queue`` are refused."""

    def __init__(self, datadir: DataDir, queue: QueueBound, timeout_sec: float = 30) -> None:
        self._datadir = datadir
        self._queue = queue
        self._timeout_sec = timeout_sec
        self._local = threading.local()

    def commit(self, messages: Sequence[VerifiedMsg]) -> list[Outcome]:
        if not messages:
            return []
        with self._queue.reserve(len(messages)):
            return unpack_outcomes(self._ask(pack_submit(messages)))

    def authorize(self, token: CapToken) -> TokenRow:
        return TokenRow(*self._perform(AUTHORIZE, token.encode()))

    def register(self, stream: StreamRecord) -> None:
        self._perform(REGISTER, stream.encode())

    def checkpoint(self, label: bytes, upto_seq: int) -> Checkpoint:
        return Checkpoint.decode(self._perform(CHECKPOINT, [label, upto_seq]))

    def recorder_checkpoint(self, profile_id: bytes, *, force: bool) -> RecorderCheckpoint:
        return RecorderCheckpoint.decode(self._perform(RECORDER_CHECKPOINT, [profile_id, force]))

    def hub_ts(self) -> int:
        """Hub time; also the proof that the sequencer answers."""
        return self.times().hub_ts

    def times(self) -> HubTimes:
        return HubTimes(**self._perform(STATUS, None))

    def verify_ready(self) -> HubTimes:
        """Hub time, or Unavailable while the disk is full or after the clock stepped ahead."""
        times = self.times()
        if times.no_room is not None:
            raise Unavailable(f"the disk is full, messages are refused: {times.no_room}")
        if times.clock_step_ahead_sec:
            raise Unavailable(
                f"the clock stepped ahead by {times.clock_step_ahead_sec} s, messages are refused: "
                "set the clock right, or restart the hub if the new time is the right one"
            )
        return times

    def _perform(self, kind: int, body: Any) -> Any:
        with self._queue.reserve(1):
            status, value = cbor2.loads(self._ask(pack(kind, body)))
        if status == "ok":
            return value
        if status == "rejected":
            raise rejected(value)
        raise {"NotFound": NotFound, "Untrusted": Untrusted}.get(status, Unavailable)(value)

    def _ask(self, request: bytes) -> bytes:
        """Send a request and wait for its answer. It is not retried: it may have been executed."""
        connection: Connection = getattr(self._local, "connection", None) or self._connect()
        try:
            connection.send_bytes(request)
            if connection.poll(self._timeout_sec):
                return connection.recv_bytes()
            raise TimeoutError
        except (EOFError, OSError) as error:
            connection.close()
            self._local.connection = None
            raise Unavailable("the sequencer did not respond; retry") from error

    def _connect(self) -> Connection:
        """Connect this thread to the sequencer; it stays connected while requests succeed."""
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            with socket_address(self._datadir) as address:
                connection.connect(address)
        except OSError as error:
            connection.close()
            raise Unavailable("the sequencer is not running") from error
        self._local.connection = Connection(connection.detach())
        return cast("Connection", self._local.connection)
