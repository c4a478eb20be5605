"""A client of the sequencer for an event loop: many submits wait on one connection.

Submits that arrive while two frames are on the way are sent together in the next one, so the
groups that the sequencer commits grow with the load and a waiting submit costs no thread.
"""

from __future__ import annotations

import asyncio
from asyncio import Future, Task, TimerHandle
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, cast

from hub.admission import VerifiedMsg
from hub.sequencer.committer import Outcome, Unavailable
from hub.sequencer.ipc import QueueBound, pack_submit, socket_address, unpack_outcomes
from hub.storage.datadir import DataDir

FRAMES_ON_THE_WAY: Final = 2
"""The sequencer commits one while the other lies in its socket."""
MAX_FRAME_MESSAGES: Final = 4_096
_SIZE_BYTES: Final = 4
_NO_ANSWER: Final = "the sequencer did not respond; retry"


@dataclass(frozen=True, slots=True)
class _Submit:
    """The messages of a request, which are sent in one frame."""

    messages: Sequence[VerifiedMsg]
    outcomes: Future[list[Outcome]]


@dataclass(frozen=True, slots=True)
class _Frame:
    submits: list[_Submit]
    deadline: TimerHandle


class CommitPipeline:
    """Commits messages; those beyond ``queue`` are refused. For one event loop."""

    def __init__(self, datadir: DataDir, queue: QueueBound, timeout_sec: float) -> None:
        self._datadir = datadir
        self._queue = queue
        self._timeout_sec = timeout_sec
        self._pending: deque[_Submit] = deque()
        self._frames: deque[_Frame] = deque()
        self._link: _Link | None = None
        self._connecting: Task[None] | None = None
        self._is_scheduled = False

    async def commit(self, messages: Sequence[VerifiedMsg]) -> list[Outcome]:
        """The outcomes, once the messages are committed; Unavailable while no one answers."""
        if not messages:
            return []
        self._queue.take(len(messages))
        loop = asyncio.get_running_loop()
        submit = _Submit(messages, loop.create_future())
        self._pending.append(submit)
        if not self._is_scheduled:
            self._is_scheduled = True
            loop.call_soon(self._send)  # after what else has arrived in this turn of the loop
        return await submit.outcomes

    def answered(self, answer: bytes) -> None:
        """Give the answer to the oldest frame to its submits."""
        outcomes = unpack_outcomes(answer)
        frame = self._frames.popleft()
        frame.deadline.cancel()
        start = 0
        for submit in frame.submits:
            end = start + len(submit.messages)
            self._settle(submit, outcomes[start:end])
            start = end
        self._send()

    def lost(self, link: _Link) -> None:
        """Give up what was sent. It is not sent again: it may have been committed."""
        if link is not self._link:
            return
        self._link = None
        while self._frames:
            frame = self._frames.popleft()
            frame.deadline.cancel()
            self._refuse(frame.submits, _NO_ANSWER)
        self._send()

    def _send(self) -> None:
        self._is_scheduled = False
        if not self._pending:
            return
        if self._link is None:
            if self._connecting is None:
                self._connecting = asyncio.get_running_loop().create_task(self._connect())
            return
        while self._pending and len(self._frames) < FRAMES_ON_THE_WAY:
            self._send_frame(self._link)

    def _send_frame(self, link: _Link) -> None:
        submits: list[_Submit] = []
        messages: list[VerifiedMsg] = []
        while self._pending and len(messages) < MAX_FRAME_MESSAGES:
            submits.append(self._pending.popleft())
            messages += submits[-1].messages
        loop = asyncio.get_running_loop()
        self._frames.append(_Frame(submits, loop.call_later(self._timeout_sec, link.close)))
        link.send(pack_submit(messages))

    async def _connect(self) -> None:
        loop = asyncio.get_running_loop()
        try:
            with socket_address(self._datadir) as address:
                _, self._link = await loop.create_unix_connection(lambda: _Link(self), address)
        except OSError:
            refused, self._pending = list(self._pending), deque()
            self._refuse(refused, "the sequencer is not running")
        finally:
            self._connecting = None
        self._send()

    def _refuse(self, submits: Sequence[_Submit], reason: str) -> None:
        for submit in submits:
            self._settle(submit, [Unavailable(reason) for _ in submit.messages])

    def _settle(self, submit: _Submit, outcomes: list[Outcome]) -> None:
        self._queue.release(len(submit.messages))
        if not submit.outcomes.done():  # its request may have been cancelled
            submit.outcomes.set_result(outcomes)


class _Link(asyncio.Protocol):
    """The connection; a frame and an answer have their size in front, as in multiprocessing."""

    _transport: asyncio.WriteTransport

    def __init__(self, pipeline: CommitPipeline) -> None:
        self._pipeline = pipeline
        self._received = bytearray()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.WriteTransport", transport)

    def send(self, frame: bytes) -> None:
        self._transport.writelines((len(frame).to_bytes(_SIZE_BYTES), frame))

    def close(self) -> None:
        self._transport.abort()

    def data_received(self, data: bytes) -> None:
        self._received += data
        while len(self._received) >= _SIZE_BYTES:
            end = _SIZE_BYTES + int.from_bytes(self._received[:_SIZE_BYTES])
            if len(self._received) < end:
                return
            answer = bytes(memoryview(self._received)[_SIZE_BYTES:end])
            del self._received[:end]
            self._pipeline.answered(answer)

    def connection_lost(self, _exc: Exception | None) -> None:
        self._pipeline.lost(self)
