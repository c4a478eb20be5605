"""A worker's line to the sequencer: one connection a thread, bounded in what may wait."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from multiprocessing.connection import Connection
from typing import Any, NamedTuple

import cbor2

from hub.admission.verified import Verified
from hub.sequencer import wireline
from hub.sequencer.address import socket_address
from hub.sequencer.committer import NotFound, Outcome, Unavailable
from hub.storage.datadir import DataDir
from hub.storage.index import TokenRow
from veen.captoken import CapToken
from veen.checkpoint import Checkpoint
from veen.control import StreamRecord
from veen.errors import Untrusted
from veen.recorder_checkpoint import RecorderCheckpoint


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
        """For how long hub time stands still yet."""
        return max(0, self.hub_ts - self.clock)


class SequencerClient:
    """Safe to share between threads. More than ``queue_limit`` messages waiting are refused."""

    def __init__(self, datadir: DataDir, queue_limit: int, timeout_sec: float = 30) -> None:
        self._datadir = datadir
        self._queue_limit = queue_limit
        self._timeout_sec = timeout_sec
        self._waiting = 0
        self._guard = threading.Lock()
        self._local = threading.local()

    @property
    def waiting(self) -> int:
        return self._waiting

    def commit(self, messages: Sequence[Verified]) -> list[Outcome]:
        if not messages:
            return []
        with self._place(len(messages)):
            return wireline.unpack_outcomes(self._ask(wireline.pack_submit(messages)))

    def authorize(self, token: CapToken) -> TokenRow:
        return TokenRow(*self._perform(wireline.AUTHORIZE, token.encode()))

    def register(self, stream: StreamRecord) -> None:
        self._perform(wireline.REGISTER, stream.encode())

    def checkpoint(self, label: bytes, upto_seq: int) -> Checkpoint:
        return Checkpoint.decode(self._perform(wireline.CHECKPOINT, [label, upto_seq]))

    def recorder_checkpoint(self, profile_id: bytes, *, force: bool) -> RecorderCheckpoint:
        found = self._perform(wireline.RECORDER_CHECKPOINT, [profile_id, force])
        return RecorderCheckpoint.decode(found)

    def hub_ts(self) -> int:
        """Hub time; also the proof that the sequencer answers."""
        return self.times().hub_ts

    def times(self) -> HubTimes:
        return HubTimes(**self._perform(wireline.STATUS, None))

    def refuse_unready(self) -> HubTimes:
        """Hub time, of a sequencer whose last write found room and whose clock did not step."""
        found = self.times()
        if found.no_room is not None:
            raise Unavailable(f"the disk is full, messages are refused: {found.no_room}")
        if found.clock_step_ahead_sec:
            raise Unavailable(
                f"the clock stepped ahead by {found.clock_step_ahead_sec} s, messages are refused: "
                "set the clock right, or restart the hub if the new time is the right one"
            )
        return found

    def _perform(self, kind: int, body: Any) -> Any:
        with self._place(1):
            said, value = cbor2.loads(self._ask(wireline.pack(kind, body)))
        if said == "ok":
            return value
        if said == "rejected":
            raise wireline.rejected(value)
        raise {"NotFound": NotFound, "Untrusted": Untrusted}.get(said, Unavailable)(value)

    def _ask(self, request: bytes) -> bytes:
        """One request and its answer. It is not repeated: it may have been carried out."""
        connection = self._connection()
        try:
            connection.send_bytes(request)
            if connection.poll(self._timeout_sec):
                return connection.recv_bytes()
            raise TimeoutError
        except (EOFError, OSError) as error:
            connection.close()
            self._local.connection = None
            raise Unavailable("the sequencer did not answer; ask again") from error

    def _connection(self) -> Connection:
        found: Connection | None = getattr(self._local, "connection", None)
        if found is None:
            found = self._connect()
            self._local.connection = found
        return found

    def _connect(self) -> Connection:
        line = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            with socket_address(self._datadir) as address:
                line.connect(address)
        except OSError as error:
            line.close()
            raise Unavailable("the sequencer is not there") from error
        return Connection(line.detach())

    @contextmanager
    def _place(self, count: int) -> Iterator[None]:
        with self._guard:
            if self._waiting and self._waiting + count > self._queue_limit:
                raise Unavailable(f"{self._waiting} messages are waiting already")
            self._waiting += count
        try:
            yield
        finally:
            with self._guard:
                self._waiting -= count
