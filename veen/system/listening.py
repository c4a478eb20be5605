"""Which processes of this host listen on a TCP address, as the kernel tells."""

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
    """Whether whoever connects to ``HOST:PORT`` reaches these processes and no other.

    A socket bound to that very address comes before one that is bound to all addresses.
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
    result = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    return {ipaddress.ip_address(item[4][0]) for item in result}


def _listeners(port: int) -> Iterator[_Listener]:
    for table in _TABLES:
        with suppress(FileNotFoundError):
            for line in Path(table).read_text().splitlines()[1:]:
                fields = line.split()
                address, _, number = fields[_LOCAL].partition(":")
                if fields[_STATE] == _LISTEN and int(number, 16) == port:
                    yield _Listener(_address(address), f"socket:[{fields[_INODE]}]")


def _address(digits: str) -> IPv4Address | IPv6Address:
    """The kernel writes an address as words of four bytes, each in the order of the host."""
    raw = bytes.fromhex(digits)
    words = [raw[at : at + _WORD][::-1] for at in range(0, len(raw), _WORD)]
    result = ipaddress.ip_address(b"".join(words))
    return getattr(result, "ipv4_mapped", None) or result


def _sockets(pids: Iterable[int]) -> Iterator[str]:
    for pid in pids:
        # It may end, or be of another user, while we look.
        with suppress(OSError):
            for entry in os.scandir(f"/proc/{pid}/fd"):
                with suppress(OSError):
                    yield str(Path(entry.path).readlink())


def refuse_taken(listen: str, otherwise: str) -> None:
    """Another service may listen there, and would answer in the place of the one to be started."""
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
