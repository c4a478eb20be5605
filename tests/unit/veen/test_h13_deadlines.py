"""H13: waiting for a request's bytes has a short deadline that grows with what arrives."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from veen.system.http_server import SLOWEST_BYTES_PER_SEC, Deadlines


@dataclass
class Clock:
    now: float = 0.0

    def __call__(self) -> float:
        return self.now


@dataclass
class Connection:
    sock: socket.socket
    peer: socket.socket

    def is_cut_off(self) -> bool:
        self.peer.setblocking(False)
        try:
            return self.peer.recv(1) == b""
        except BlockingIOError:
            return False


@pytest.fixture
def line() -> Iterator[Connection]:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield Connection(ours, theirs)


def test_h13_a_body_that_does_not_come_is_cut_off(line: Connection) -> None:
    clock = Clock()
    deadlines = Deadlines(30, clock, 3)
    with deadlines.serving(line):
        clock.now = 2.9
        deadlines.cut_off()
        assert not line.is_cut_off()
        clock.now = 3.1
        deadlines.cut_off()
        assert line.is_cut_off()


def test_h13_others_that_wait_for_a_thread_shorten_it(line: Connection) -> None:
    clock = Clock()
    deadlines = Deadlines(30, clock, 3)
    with deadlines.serving(line):
        clock.now = 1.1
        deadlines.cut_off()
        assert not line.is_cut_off()
        deadlines.cut_off(under_load=True)
        assert line.is_cut_off()


def test_h13_a_steady_sender_has_all_the_time_of_a_request(line: Connection) -> None:
    clock = Clock()
    deadlines = Deadlines(30, clock, 3)
    with deadlines.serving(line) as reading:

        def receive() -> bytes:
            clock.now += 0.5
            deadlines.cut_off(under_load=True)
            return bytes(SLOWEST_BYTES_PER_SEC)

        while clock.now < 29:
            reading.receive(receive)
            assert not line.is_cut_off()
        clock.now = 30.1
        deadlines.cut_off()
        assert line.is_cut_off()


def test_h13_a_byte_now_and_then_is_not_enough(line: Connection) -> None:
    clock = Clock()
    deadlines = Deadlines(30, clock, 3)

    def receive() -> bytes:
        clock.now += 0.9
        deadlines.cut_off()
        return b"x"

    with deadlines.serving(line) as reading:
        for _ in range(4):
            reading.receive(receive)
    assert line.is_cut_off()


def test_h13_work_on_a_request_is_not_waiting_for_it(line: Connection) -> None:
    clock = Clock()
    deadlines = Deadlines(30, clock, 3)
    with deadlines.serving(line) as reading:
        reading.receive(lambda: b"a whole request")
        clock.now = 29
        deadlines.cut_off(under_load=True)
        assert not line.is_cut_off()
