"""Connections that are served for too long are cut off, and no others."""

from __future__ import annotations

import socket
from dataclasses import dataclass

from veen.system.http_server import Deadlines


@dataclass
class Line:
    sock: socket.socket


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_only_what_is_late_is_cut_off() -> None:
    clock = Clock()
    deadlines = Deadlines(5, clock)
    ours, theirs = socket.socketpair()
    young, other = socket.socketpair()
    with ours, theirs, young, other, deadlines.serving(Line(ours)):
        clock.now = 4
        with deadlines.serving(Line(young)):
            clock.now = 6
            deadlines.cut_off()
            assert theirs.recv(1) == b""
            other.setblocking(False)
            young.sendall(b"x")
            assert other.recv(1) == b"x"


def test_what_was_served_is_left_alone() -> None:
    clock = Clock()
    deadlines = Deadlines(5, clock)
    ours, theirs = socket.socketpair()
    with ours, theirs:
        with deadlines.serving(Line(ours)):
            pass
        clock.now = 100
        deadlines.cut_off()
        ours.sendall(b"x")
        assert theirs.recv(1) == b"x"


def test_the_socket_of_the_moment_is_cut_off() -> None:
    """A connection that begins to speak TLS has another one from then on."""
    clock = Clock()
    deadlines = Deadlines(5, clock)
    first, _ = pair = socket.socketpair()
    later, far = socket.socketpair()
    line = Line(first)
    with deadlines.serving(line):
        line.sock = later
        clock.now = 6
        deadlines.cut_off()
        assert far.recv(1) == b""
    for item in (*pair, later, far):
        item.close()


def test_a_connection_that_is_closed_already_is_no_trouble() -> None:
    clock = Clock()
    deadlines = Deadlines(5, clock)
    ours, theirs = socket.socketpair()
    theirs.close()
    with deadlines.serving(Line(ours)):
        ours.close()
        clock.now = 6
        deadlines.cut_off()
