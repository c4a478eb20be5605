"""The processes of this host that listen on a TCP address, from /proc."""

from __future__ import annotations

import ipaddress
import os
import socket
from collections.abc import Iterable, Iterator
from contextlib import suppress
from ipaddress import IPv4Address, IPv6Address
from pathlib import Path
from typing import Final, NamedTuple

from veen.errors import Refused

_TABLES: Final = ("/proc/net/tcp", "/proc/net/tcp6")
_LISTEN: Final = "0A"
_LOCAL, _STATE, _INODE = 1, 3, 9
_WORD: Final = 4


class _Listener(NamedTuple):
    address: IPv4Address | IPv6Address
    socket: str


def is_served_by(listen: str, pids: Iterable[int]) -> bool:
    """Whether connections to ``HOST:PORT`` reach these processes and no others.

    A socket bound to that address takes precedence over one bound to all addresses.
    """
    host, _, port = listen.rpartition(":")
    listeners = list(_listeners(int(port)))
    exact = {
        listener.socket
        for listener in listeners
        if listener.address in _addresses(host.strip("[]"))
    }
    reached = exact or {
        listener.socket for listener in listeners if listener.address.is_unspecified
    }
    return bool(reached) and reached <= frozenset(_sockets(pids))


def _addresses(host: str) -> set[IPv4Address | IPv6Address]:
    infos = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    return {ipaddress.ip_address(info[4][0]) for info in infos}


def _listeners(port: int) -> Iterator[_Listener]:
    for table in _TABLES:
        with suppress(FileNotFoundError):
            for line in Path(table).read_text().splitlines()[1:]:
                fields = line.split()
                address, _, number = fields[_LOCAL].partition(":")
                if fields[_STATE] == _LISTEN and int(number, 16) == port:
                    yield _Listener(_address(address), f"socket:[{fields[_INODE]}]")


def _address(digits: str) -> IPv4Address | IPv6Address:
    """An address of /proc/net/tcp: words of four bytes in host byte order."""
    raw = bytes.fromhex(digits)
    words = [raw[at : at + _WORD][::-1] for at in range(0, len(raw), _WORD)]
    address = ipaddress.ip_address(b"".join(words))
    return getattr(address, "ipv4_mapped", None) or address


def _sockets(pids: Iterable[int]) -> Iterator[str]:
    for pid in pids:
        # The process may have ended, or belong to another user.
        with suppress(OSError):
            for entry in os.scandir(f"/proc/{pid}/fd"):
                with suppress(OSError):
                    yield str(Path(entry.path).readlink())


def refuse_taken(listen: str, otherwise: str) -> None:
    """Raise Refused if another process listens on an address."""
    host, _, port = listen.rpartition(":")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host.strip("[]"), int(port)))
        except OSError as error:
            raise Refused(
                f"cannot listen on {listen}: {error.strerror}. Stop what listens there, or "
                f"{otherwise}"
            ) from error
