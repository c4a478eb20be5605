"""One process at a time uses a client directory, and the others learn which one it is."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from veen.keystore.directory import (
    ClientDir,
    ClientDirLock,
    IdentityExists,
    Locked,
    NoIdentity,
)
from veen.system.filelock import LockWait

NOW = 1_700_000_000
PASSPHRASE = b"correct horse battery staple"
Create = Callable[..., ClientDir]
HOLD = """
import sys
from pathlib import Path
from veen.keystore.directory import ClientDir, ClientDirLock
lock = ClientDirLock(ClientDir(Path(sys.argv[1])))
print("held", flush=True)
sys.stdin.read()
lock.release()
"""
MAKE = """
import os, sys
from pathlib import Path
from veen.errors import VeenError
from veen.keystore.directory import ClientDir, IdentityExists, Locked
from veen.keystore.sealed import LEAST
sys.stdin.read(1)
try:
    made = ClientDir(Path(sys.argv[1])).create(
        now=1, random=os.urandom, passphrase=b"p", cost=LEAST
    )
    print(made.client_id.hex())
except (IdentityExists, Locked):
    print("no")
"""


@contextmanager
def holder(client: ClientDir) -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(client.root)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == b"held\n"
    yield process
    process.communicate()


def test_a_second_process_learns_who_holds_the_directory(create_client_dir: Create) -> None:
    client = create_client_dir()
    with holder(client) as process:
        who = f"in use by process {process.pid} on {socket.gethostname()}"
        with pytest.raises(Locked, match=who):
            ClientDirLock(client)
        with pytest.raises(Locked, match=who):
            client.rotate(NOW, os.urandom, PASSPHRASE)
    ClientDirLock(client).release()


def test_the_end_of_a_process_ends_its_hold(create_client_dir: Create) -> None:
    client = create_client_dir()
    with holder(client) as process:
        process.send_signal(signal.SIGKILL)
        process.wait()
        with ClientDirLock(client):
            pass


def test_a_lock_is_held_as_long_as_its_block(create_client_dir: Create) -> None:
    client = create_client_dir()
    with ClientDirLock(client), pytest.raises(Locked, match=f"process {os.getpid()}"):
        ClientDirLock(client)
    with ClientDirLock(client):
        pass
    assert client.lock.read_bytes() == b""


def test_a_directory_that_is_not_there_names_the_command(tmp_path: Path) -> None:
    with pytest.raises(NoIdentity, match="veen keygen --out"):
        ClientDirLock(ClientDir(tmp_path / "nowhere"))


def test_of_two_makers_one_wins(tmp_path: Path) -> None:
    """Whoever wins, card and keystore are of one identity."""
    for turn in range(3):
        client = ClientDir(tmp_path / str(turn))
        makers = [
            subprocess.Popen(
                [sys.executable, "-c", MAKE, str(client.root)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
            for _ in range(3)
        ]
        for maker in makers:
            assert maker.stdin is not None
            maker.stdin.write("x")
            maker.stdin.flush()
        outputs = [maker.communicate()[0].strip() for maker in makers]
        (winner,) = [item for item in outputs if item != "no"]
        assert client.open(b"p").client_id.hex() == client.read_card().client_id.hex() == winner
        with pytest.raises(IdentityExists):
            client.create(now=NOW, random=os.urandom, passphrase=None)


def test_h25_reader_keys_are_read_while_another_process_holds_the_directory(
    create_client_dir: Create,
) -> None:
    client = create_client_dir()
    opened = client.open(PASSPHRASE)
    before = {path: path.stat().st_mtime_ns for path in client.root.iterdir()}
    with holder(client):
        assert client.reader_keys(PASSPHRASE) == opened.readers()
        held = {
            path: path.stat().st_mtime_ns for path in client.root.iterdir() if path != client.lock
        }
    assert held == {item: at for item, at in before.items() if item != client.lock}


def test_h34_a_held_directory_names_the_program_and_never_says_to_end_it(
    create_client_dir: Create,
) -> None:
    client = create_client_dir()
    with holder(client) as process, pytest.raises(Locked) as caught:
        ClientDirLock(client)
    detail = str(caught.value)
    assert f"process {process.pid}" in detail
    assert "(-c" in detail
    assert "--client DIR" in detail
    assert "end it" not in detail


def test_h34_a_command_waits_for_the_one_before_it(create_client_dir: Create) -> None:
    client = create_client_dir()
    first: list[Any] = []

    def release(_: float) -> None:
        first.pop().release()

    first.append(ClientDirLock(client))
    ClientDirLock(client, LockWait(5, release)).release()
    with ClientDirLock(client), pytest.raises(Locked):
        ClientDirLock(client, LockWait(0.3, lambda _: None))
