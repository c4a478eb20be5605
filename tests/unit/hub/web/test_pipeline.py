"""The client of the sequencer for an event loop, with a peer that answers when it is told to."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from hub.admission import VerifiedMsg
from hub.sequencer.committer import Outcome, Unavailable
from hub.sequencer.ipc import QueueBound, pack_outcomes, socket_address, unpack_submit
from hub.sequencer.pipeline import CommitPipeline
from hub.storage.datadir import DataDir


def msg(number: int) -> VerifiedMsg:
    zero = bytes(32)
    return VerifiedMsg(b"%d" % number, zero, zero, zero, number, 0, None, zero)


class Peer:
    """Answers a frame with the bytes of its messages, once ``answering`` is set."""

    def __init__(self) -> None:
        self.frames: list[list[bytes]] = []
        self.answering = asyncio.Event()
        self.arrived = asyncio.Event()
        self.writer: asyncio.StreamWriter | None = None

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.writer = writer
        try:
            while True:
                size = int.from_bytes(await reader.readexactly(4))
                messages = unpack_submit(await reader.readexactly(size))
                self.frames.append([item.raw for item in messages])
                self.arrived.set()
                await self.answering.wait()
                answer = pack_outcomes([item.raw for item in messages])
                writer.write(len(answer).to_bytes(4) + answer)
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()


@asynccontextmanager
async def peer_of(datadir: DataDir) -> AsyncIterator[Peer]:
    peer = Peer()
    with socket_address(datadir) as address:
        server = await asyncio.start_unix_server(peer.serve, address)
    try:
        yield peer
    finally:
        server.close()
        if peer.writer is not None:
            peer.writer.close()


@pytest.fixture
def datadir(tmp_path: Path) -> DataDir:
    result = DataDir(tmp_path)
    result.create()
    return result


def run(test: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(asyncio.wait_for(test(), 30))


def reasons(outcomes: list[Outcome]) -> list[str]:
    assert all(isinstance(outcome, Unavailable) for outcome in outcomes)
    return [str(outcome) for outcome in outcomes]


def test_submits_that_wait_are_sent_together_and_get_their_own_outcomes(datadir: DataDir) -> None:
    async def test() -> None:
        async with peer_of(datadir) as peer:
            queue = QueueBound(1_000)
            pipeline = CommitPipeline(datadir, queue, 30)
            first = asyncio.create_task(pipeline.commit([msg(0)]))
            await peer.arrived.wait()
            sizes = [1, 3, 2, 1]
            groups, number = [], 1
            for size in sizes:
                groups.append([msg(item) for item in range(number, number + size)])
                number += size
            tasks = [asyncio.create_task(pipeline.commit(group)) for group in groups]
            await asyncio.sleep(0)
            late = asyncio.create_task(pipeline.commit([msg(99)]))
            await asyncio.sleep(0.05)
            peer.answering.set()
            assert await first == [b"0"]
            for task, group in zip(tasks, groups, strict=True):
                assert await task == [item.raw for item in group]
            assert await late == [b"99"]
            assert peer.frames[0] == [b"0"]
            assert peer.frames[1][:7] == [b"%d" % item for item in range(1, 8)]
            queue.take(1_000)

    run(test)


def test_no_messages_ask_nobody(datadir: DataDir) -> None:
    async def test() -> None:
        assert await CommitPipeline(datadir, QueueBound(1), 30).commit([]) == []

    run(test)


def test_a_full_queue_refuses_at_once(datadir: DataDir) -> None:
    async def test() -> None:
        async with peer_of(datadir) as peer:
            pipeline = CommitPipeline(datadir, QueueBound(3), 30)
            waiting = asyncio.create_task(pipeline.commit([msg(1), msg(2)]))
            await peer.arrived.wait()
            with pytest.raises(Unavailable, match="the queue is full: 2 messages are waiting"):
                await pipeline.commit([msg(3), msg(4)])
            peer.answering.set()
            assert await waiting == [b"1", b"2"]
            assert await pipeline.commit([msg(3), msg(4)]) == [b"3", b"4"]

    run(test)


def test_without_a_sequencer_nothing_is_accepted(datadir: DataDir) -> None:
    async def test() -> None:
        queue = QueueBound(2)
        pipeline = CommitPipeline(datadir, queue, 30)
        for _ in range(3):
            outcomes = await pipeline.commit([msg(1), msg(2)])
            assert reasons(outcomes) == ["the sequencer is not running"] * 2
        async with peer_of(datadir) as peer:
            peer.answering.set()
            assert await pipeline.commit([msg(1)]) == [b"1"]

    run(test)


def test_what_was_sent_is_given_up_when_the_connection_ends_and_not_sent_again(
    datadir: DataDir,
) -> None:
    async def test() -> None:
        async with peer_of(datadir) as peer:
            pipeline = CommitPipeline(datadir, QueueBound(10), 30)
            sent = asyncio.create_task(pipeline.commit([msg(1)]))
            await peer.arrived.wait()
            assert peer.writer is not None
            peer.writer.transport.abort()
            assert reasons(await sent) == ["the sequencer did not respond; retry"]
            peer.answering.set()
            assert await pipeline.commit([msg(2)]) == [b"2"]
            assert peer.frames == [[b"1"], [b"2"]]

    run(test)


def test_an_answer_that_does_not_come_in_time_is_given_up(datadir: DataDir) -> None:
    async def test() -> None:
        async with peer_of(datadir) as peer:
            pipeline = CommitPipeline(datadir, QueueBound(10), 0.1)
            outcomes = await pipeline.commit([msg(1)])
            assert reasons(outcomes) == ["the sequencer did not respond; retry"]
            peer.answering.set()
            assert await pipeline.commit([msg(2)]) == [b"2"]

    run(test)


def test_a_request_that_was_given_up_keeps_its_place_until_it_is_answered(
    datadir: DataDir,
) -> None:
    async def test() -> None:
        async with peer_of(datadir) as peer:
            pipeline = CommitPipeline(datadir, QueueBound(1), 30)
            given_up = asyncio.create_task(pipeline.commit([msg(1)]))
            await peer.arrived.wait()
            given_up.cancel()
            with pytest.raises(asyncio.CancelledError):
                await given_up
            with pytest.raises(Unavailable, match="queue is full"):
                await pipeline.commit([msg(2)])
            peer.answering.set()
            await _until_there_is_room(pipeline)
            assert await pipeline.commit([msg(3)]) == [b"3"]

    run(test)


async def _until_there_is_room(pipeline: CommitPipeline) -> None:
    outcomes: list[Outcome] = []
    while not outcomes:
        with suppress(Unavailable):
            outcomes = await pipeline.commit([msg(2)])
        await asyncio.sleep(0.01)
    assert outcomes == [b"2"]
