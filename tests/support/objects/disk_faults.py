"""Play a history on a directory once for every file operation and kind of fault.

A process of its own, single-threaded, so that each run is a fork of it. Prints what went wrong,
if anything, and at last how many runs there were.
"""

from __future__ import annotations

import errno
import os
import shutil
import signal
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from veen.objects.files import FileHeads, FileObjects, FileRetention, StoreLayout
from veen.objects.port import StoreError
from veen.system.durable import SyncFailed

OPERATIONS = ("open", "link", "fsync", "rename", "unlink", "mkdir", "fchmod")
KEYS = ("b/c", "b")
REAL_OPEN, REAL_WRITE = os.open, os.write


def content(key: str) -> bytes:
    return key.encode() * 30_000


class FaultyDisk:
    """Counts file operations; number ``at`` fails, or the process dies before or after it."""

    def __init__(self, kind: str, at: int) -> None:
        self.count, self._kind, self._at = 0, kind, at

    def install(self) -> None:
        for name in OPERATIONS:
            setattr(os, name, self._wrap(name, getattr(os, name)))
        real = shutil.copyfileobj

        def copy(source: Any, target: Any, length: int) -> None:
            def half() -> None:
                target.write(source.read(1_000))
                target.flush()

            self._run(half, lambda: real(source, target, length))

        shutil.copyfileobj = copy  # type: ignore[assignment]

    def _wrap(self, name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def operation(*arguments: Any, **options: Any) -> Any:
            if name == "mkdir" and Path(arguments[0]).is_dir():
                return real(*arguments, **options)
            return self._run(lambda: None, lambda: real(*arguments, **options))

        return operation

    def _run(self, partly: Callable[[], None], wholly: Callable[[], Any]) -> Any:
        self.count += 1
        if self.count != self._at:
            return wholly()
        if self._kind == "after":
            with suppress(OSError):
                wholly()
        else:
            partly()
        if self._kind in {"eio", "enospc"}:
            number = errno.EIO if self._kind == "eio" else errno.ENOSPC
            raise OSError(number, os.strerror(number))
        os.kill(os.getpid(), signal.SIGKILL)
        return None


def play(root: Path, journal: int) -> None:
    """Put, swap and delete; each thing that is done is written as one byte."""
    layout = StoreLayout(root)
    layout.prepare()
    objects, heads, retention = FileObjects(layout), FileHeads(layout), FileRetention(layout)
    for key in KEYS:
        objects.put(key, content(key))
        REAL_WRITE(journal, b"p")
        heads.swap(heads.read("x/head"), key.encode())
        REAL_WRITE(journal, b"s")
    retention.delete("b")
    REAL_WRITE(journal, b"d")


def check(root: Path, journal: bytes) -> None:
    """What was written is there, what is there is whole, and the store goes on."""
    layout = StoreLayout(root)
    layout.prepare()
    assert list(layout.staging.iterdir()) == [], "left over"
    objects, heads = FileObjects(layout), FileHeads(layout)
    stored = {key: objects.get(key) for key in objects.keys("")}
    assert all(stored[key] == content(key) for key in stored), "partial"
    retained = set(KEYS[: journal.count(b"p")]) - {"b"}
    assert retained <= set(stored), "lost"
    assert b"d" not in journal or "b" not in stored, "not deleted"
    swaps = journal.count(b"s")
    values = [None, *(key.encode() for key in KEYS)][swaps : swaps + 2]
    assert heads.read("x/head").value in values, "head"
    for key in KEYS:
        objects.put(key, content(key))
    assert list(objects.keys()) == sorted(KEYS)
    heads.swap(heads.read("x/head"), b"on")


def in_child(work: Callable[[], None]) -> int:
    child = os.fork()
    if not child:
        try:
            work()
        except (StoreError, SyncFailed, OSError) as error:
            os._exit(4 if isinstance(error, OSError) else 3)
        except BaseException as error:  # noqa: BLE001 - whatever it is, the parent must see it
            print(repr(error), flush=True)
            os._exit(5)
        os._exit(0)
    return os.waitpid(child, 0)[1]


def run(folder: Path, kind: str, at: int) -> tuple[int, int]:
    """How the faulty run ended, and how many operations it had."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()

    def work() -> None:
        journal = REAL_OPEN(folder / "journal", os.O_WRONLY | os.O_CREAT, 0o600)
        faults = FaultyDisk(kind, at)
        faults.install()
        play(folder / "store", journal)
        REAL_WRITE(journal, f" {faults.count}".encode())

    status = in_child(work)
    journal, _, count = (folder / "journal").read_bytes().partition(b" ")
    if in_child(lambda: check(folder / "store", journal)):
        print(f"{kind} at {at}: wrong afterwards, after {journal!r}", flush=True)
    return status, int(count or 0)


def main(folder: Path, kind: str) -> None:
    _, operations = run(folder, "none", 0)
    for at in range(1, operations + 1):
        status, _ = run(folder, kind, at)
        # A failure that nobody hears of would end with 0.
        if os.WIFEXITED(status) and os.WEXITSTATUS(status) != 3:
            print(f"{kind} at {at}: ended with {os.WEXITSTATUS(status)}", flush=True)
    print(f"{operations} runs")


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
