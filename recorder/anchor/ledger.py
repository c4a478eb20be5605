"""The ledger: an append-only file of roots, each line bound to the one before it (ANCHOR0.1).

Beside it lies a mark, which tells how much of it was acknowledged. What is missing below the mark
was taken away; what is torn above it was never promised to anyone.
"""

from __future__ import annotations

import fcntl
import logging
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from recorder.anchor import ledger_entry
from recorder.anchor.ledger_chain import Chain, chain_of, check, mark_of, read_mark
from recorder.anchor.ledger_entry import (
    LedgerEntry,
    LedgerMark,
    LedgerRef,
    first_entry,
    may_be_torn,
    read_line,
)
from recorder.anchor.port import Anchored, AnchorUnavailable
from veen import durable
from veen.errors import Malformed, Untrusted

_LOG = logging.getLogger(__name__)
_NONCE_BYTES: Final = 32


class Ledger:
    """One writer at a time, by a lock on the file; a copy of the file is enough to verify."""

    kind: Final = ledger_entry.KIND

    def __init__(self, path: Path, random: Callable[[int], bytes]) -> None:
        self._path = path
        self._random = random

    @property
    def _mark(self) -> Path:
        return mark_of(self._path)

    def publish(self, root: bytes, epoch: int, ts: int, nonce: bytes) -> bytes:
        """Append, and sync; costs the same however long the ledger is."""
        with self._opened() as fd:
            mark, last = self._settled(fd, ts)
            entry = last.next(root, epoch, ts, nonce)
            moved = self._append(fd, mark.ledger_id, entry, mark.end)
        return LedgerRef(
            ledger_id=moved.ledger_id, index=entry.index, entry_hash=entry.hash
        ).encode()

    def verify(self, root: bytes, anchor_ref: bytes) -> Anchored:
        """Reads the whole ledger: one that was touched anywhere proves nothing."""
        ref = LedgerRef.decode(anchor_ref)
        chain = check(self._path, ref.index)
        if chain.ledger_id != ref.ledger_id:
            raise Untrusted(
                f"{self._path} is ledger {chain.ledger_id.hex()}; the anchor is in "
                f"{ref.ledger_id.hex()}: look for that file, or a copy of it"
            )
        entry = chain.found
        if entry is None or ref.index == 0:
            raise Untrusted(
                f"{self._path} ends at entry {chain.last.index}; the anchor is entry {ref.index}"
            )
        if entry.hash != ref.entry_hash:
            raise Untrusted(f"{self._path}: entry {ref.index} is another one: the ledger forked")
        if entry.root != root:
            raise Untrusted(f"{self._path}: entry {ref.index} holds another root")
        return Anchored(
            kind=self.kind,
            root=root,
            epoch=entry.epoch,
            ts=entry.ts,
            nonce=entry.nonce,
            time=entry.ts,
            witness=f"ledger {ref.ledger_id.hex()}",
            place=f"entry {ref.index} of {chain.last.index}",
        )

    @contextmanager
    def _opened(self) -> Iterator[int]:
        try:
            durable.make_directory(self._path.parent)
            flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
            fd = os.open(self._path, flags, durable.FILE_MODE)
        except OSError as error:
            raise AnchorUnavailable(f"ledger {self._path}: {error.strerror}") from error
        try:
            fcntl.flock(fd, fcntl.LOCK_EX)
            yield fd
        except OSError as error:
            raise AnchorUnavailable(f"ledger {self._path}: {error.strerror}") from error
        finally:
            os.close(fd)

    def _settled(self, fd: int, ts: int) -> tuple[LedgerMark, LedgerEntry]:
        """The mark and the last entry, after whatever ended the writer before us."""
        mark = read_mark(self._path)
        if mark is None:
            return self._without_mark(fd, ts)
        last = self._marked(fd, mark)
        for line in _lines(fd, mark.end):
            try:
                entry = read_line(line)
                entry.verify_after(last)
            except (Malformed, Untrusted):
                break
            mark, last = self._write_mark(mark.ledger_id, entry, mark.end), entry
        self._cut(fd, mark.end)
        return mark, last

    def _marked(self, fd: int, mark: LedgerMark) -> LedgerEntry:
        raw = os.pread(fd, mark.end - mark.start, mark.start)
        try:
            last = read_line(raw)
        except Malformed as error:
            raise Untrusted(
                f"{self._path}: entry {mark.index} was acknowledged and is not there any more "
                f"({error}). Put back a copy of the ledger that has it"
            ) from error
        if (last.index, last.hash) != (mark.index, mark.entry_hash):
            raise Untrusted(
                f"{self._path}: entry {mark.index} is not the one that was acknowledged. "
                "Put back a copy of the ledger that has it"
            )
        return last

    def _without_mark(self, fd: int, ts: int) -> tuple[LedgerMark, LedgerEntry]:
        """A new ledger, or one whose mark was lost: then every byte of it must be right."""
        if next(_lines(fd, 0), None) is None:
            if not may_be_torn(os.pread(fd, os.fstat(fd).st_size, 0)):
                raise Untrusted(f"{self._path} is no ledger; name another file for it")
            self._cut(fd, 0)
            first = first_entry(ts, self._random(_NONCE_BYTES))
            mark = self._append(fd, first.hash, first, 0)
            durable.sync_directory(self._path.parent)
            return mark, first
        with os.fdopen(os.dup(fd), "rb") as file:
            chain = chain_of(self._path, file, None)
        return self._write_mark(chain.ledger_id, chain.last, _start(chain)), chain.last

    def _append(self, fd: int, ledger_id: bytes, entry: LedgerEntry, at: int) -> LedgerMark:
        durable.append(fd, at, entry.line())
        return self._write_mark(ledger_id, entry, at)

    def _write_mark(self, ledger_id: bytes, entry: LedgerEntry, start: int) -> LedgerMark:
        mark = LedgerMark(
            ledger_id=ledger_id,
            index=entry.index,
            entry_hash=entry.hash,
            start=start,
            end=start + len(entry.line()),
        )
        durable.write(self._mark, mark.encode())
        return mark

    def _cut(self, fd: int, size: int) -> None:
        if os.fstat(fd).st_size > size:
            _LOG.warning("%s: cut a torn entry that was never acknowledged", self._path)
            durable.cut(fd, size)


def _start(chain: Chain) -> int:
    return chain.end - len(chain.last.line())


def _lines(fd: int, at: int) -> Iterator[bytes]:
    """The whole lines from ``at`` on."""
    with os.fdopen(os.dup(fd), "rb") as file:
        file.seek(at)
        for line in iter(lambda: file.readline(ledger_entry.MAX_LINE_BYTES + 1), b""):
            if not line.endswith(b"\n"):
                return
            yield line
