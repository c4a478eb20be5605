"""The ledger: an append-only file of roots, each entry bound to the previous by hash (ANCHOR0.1).

A mark file beside it holds the acknowledged length. Entries missing below the mark were removed;
a torn entry above it was never acknowledged. Reading verifies the hash chain from the first entry
to the last and reports where it breaks.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import BinaryIO, Final

from recorder.anchor.anchors import AnchorProof, AnchorUnavailable
from veen.digest import ht, u64be
from veen.errors import Malformed, Untrusted
from veen.system import durable, filelock
from veen.wire import canonical_json
from veen.wire.objects import WireMap
from veen.wire.schema import Bytes32, Version

_LOG = logging.getLogger(__name__)

KIND: Final = "file"
MAX_NONCE_BYTES: Final = 64
MAX_LINE_BYTES: Final = 1_024
_NO_HASH: Final = bytes(32)
_LINE_START: Final = b'{"epoch":0,"hash":"'
_NONCE_BYTES: Final = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class AnchorLedgerEntry(WireMap):
    """A line of the ledger.

    Entry 0 holds no root: its random nonce makes its hash the ledger's id.
    """

    ver: Version = 1
    index: int
    previous: Bytes32
    root: Bytes32
    epoch: int
    ts: int
    nonce: bytes
    hash: Bytes32 = _NO_HASH

    def rule(self) -> None:
        if len(self.nonce) > MAX_NONCE_BYTES:
            raise Malformed(
                f"nonce: expected at most {MAX_NONCE_BYTES} bytes, got {len(self.nonce)}"
            )
        if self.index == 0 and (self.previous, self.root) != (_NO_HASH, _NO_HASH):
            raise Malformed("entry 0: expected zeros as previous and root, got a hash")

    def sealed(self) -> AnchorLedgerEntry:
        return replace(self, hash=self._digest())

    def next(self, root: bytes, epoch: int, ts: int, nonce: bytes) -> AnchorLedgerEntry:
        following = AnchorLedgerEntry(
            index=self.index + 1,
            previous=self.hash,
            root=root,
            epoch=epoch,
            ts=ts,
            nonce=nonce,
        )
        following.encode()  # refuses what no field may hold
        return following.sealed()

    def line(self) -> bytes:
        return canonical_json.encode(self.to_json()) + b"\n"

    def verify_after(self, before: AnchorLedgerEntry | None) -> None:
        """Verify that this entry is intact and directly follows ``before``."""
        if self.hash != self._digest():
            raise Untrusted(f"hash: expected that of its fields, got {self.hash.hex()}")
        expected = 0 if before is None else before.index + 1
        if self.index != expected:
            raise Untrusted(
                f"expected index {expected}, got {self.index}: entries were removed or moved"
            )
        if before is not None and self.previous != before.hash:
            raise Untrusted(
                "previous is not the hash of the entry before: one of the two was replaced"
            )

    def _digest(self) -> bytes:
        return ht(
            "veen/anchor-ledger",
            self.previous,
            u64be(self.index),
            self.root,
            u64be(self.epoch),
            u64be(self.ts),
            self.nonce,
        )


def first_entry(ts: int, nonce: bytes) -> AnchorLedgerEntry:
    entry = AnchorLedgerEntry(
        index=0, previous=_NO_HASH, root=_NO_HASH, epoch=0, ts=ts, nonce=nonce
    )
    return entry.sealed()


def may_be_torn(raw: bytes) -> bool:
    """Whether these bytes can be the rest of an interrupted write of the first entry."""
    is_cut = len(raw) < MAX_LINE_BYTES and raw.startswith(_LINE_START[: len(raw)])
    return is_cut or not raw.strip(b"\0")


def read_line(line: bytes) -> AnchorLedgerEntry:
    """Decode a line, including its newline; Malformed unless it is the canonical form."""
    try:
        entry = AnchorLedgerEntry.from_json(json.loads(line))
    except Malformed:
        raise
    except (ValueError, RecursionError) as error:
        raise Malformed(f"expected JSON: {error}") from error
    if entry.line() != line:
        raise Malformed("expected canonical JSON of an entry, got another form")
    return entry


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerRef(WireMap):
    """The anchor_ref of a ledger: the ledger's id, and the entry."""

    ver: Version = 1
    kind: str = KIND
    ledger_id: Bytes32
    index: int
    entry_hash: Bytes32

    def rule(self) -> None:
        if self.kind != KIND:
            raise Malformed(f"anchor_ref: expected kind {KIND}, got {self.kind}")


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerMark(WireMap):
    """The acknowledged length of a ledger: its last entry, and where that starts and ends."""

    ver: Version = 1
    ledger_id: Bytes32
    index: int
    entry_hash: Bytes32
    start: int
    end: int

    def rule(self) -> None:
        if not self.start < self.end <= self.start + MAX_LINE_BYTES:
            raise Malformed(
                f"mark: expected an entry of 1 to {MAX_LINE_BYTES} bytes, got "
                f"{self.end - self.start}"
            )


@dataclass(frozen=True, slots=True)
class Chain:
    """A verified ledger: its id, its last entry, its length, and the requested entry."""

    ledger_id: bytes
    last: AnchorLedgerEntry
    end: int
    entry: AnchorLedgerEntry | None


def mark_of(path: Path) -> Path:
    return path.with_name(f"{path.name}.mark")


def check(path: Path, index: int | None = None) -> Chain:
    """Verify a whole ledger, or a copy of it, and return entry ``index`` with it.

    Raises Untrusted with the line at which the chain breaks.
    """
    with _open_to_read(path) as file:
        filelock.acquire(file.fileno(), shared=True)
        chain = chain_of(path, file, index)
        mark = read_mark(path)
    if mark is None:
        return chain
    if chain.ledger_id != mark.ledger_id or chain.last.index < mark.index:
        raise Untrusted(
            f"{path}: expected entry {mark.index} of ledger {mark.ledger_id.hex()}, which was "
            f"acknowledged; got {chain.last.index} of {chain.ledger_id.hex()} as the last"
        )
    return chain


def _open_to_read(path: Path) -> BinaryIO:
    try:
        return path.open("rb")
    except FileNotFoundError:
        raise Untrusted(
            f"the ledger {path} is missing: without it, or a copy of it, no anchor in it is proven"
        ) from None


def read_mark(path: Path) -> LedgerMark | None:
    try:
        return LedgerMark.decode(mark_of(path).read_bytes())
    except FileNotFoundError:
        return None
    except Malformed as error:
        raise Untrusted(
            f"{mark_of(path)}: the acknowledged length of the ledger cannot be read: {error}; "
            "restore a copy of the file, or verify the ledger by its anchors and remove it"
        ) from error


def chain_of(path: Path, file: BinaryIO, index: int | None) -> Chain:
    file.seek(0)
    first = previous = requested = None
    end = 0
    while line := file.readline(MAX_LINE_BYTES + 1):
        try:
            entry = read_line(line)
            entry.verify_after(previous)
        except (Malformed, Untrusted) as error:
            number = 0 if previous is None else previous.index + 1
            raise Untrusted(f"{path}: the ledger is broken at entry {number}: {error}") from error
        first, previous, end = first or entry, entry, end + len(line)
        requested = entry if entry.index == index else requested
    if first is None or previous is None:
        raise Untrusted(f"{path}: the ledger is empty")
    return Chain(first.hash, previous, end, requested)


class AnchorLedger:
    """A ledger file with one writer at a time, by a file lock; a copy of it is enough to verify."""

    kind: Final = KIND

    def __init__(self, path: Path, random: Callable[[int], bytes]) -> None:
        self._path = path
        self._random = random

    @property
    def _mark(self) -> Path:
        return mark_of(self._path)

    def publish(self, root: bytes, epoch: int, ts: int, nonce: bytes) -> bytes:
        """Append and sync; the cost does not depend on the length of the ledger."""
        with self._opened() as fd:
            mark, last = self._settled(fd, ts)
            entry = last.next(root, epoch, ts, nonce)
            moved = self._append(fd, mark.ledger_id, entry, mark.end)
        return LedgerRef(
            ledger_id=moved.ledger_id, index=entry.index, entry_hash=entry.hash
        ).encode()

    def verify(self, root: bytes, anchor_ref: bytes) -> AnchorProof:
        """Verify the whole ledger: a change anywhere invalidates every anchor in it."""
        ref = LedgerRef.decode(anchor_ref)
        chain = check(self._path, ref.index)
        if chain.ledger_id != ref.ledger_id:
            raise Untrusted(
                f"{self._path}: expected ledger {ref.ledger_id.hex()}, which has the anchor, got "
                f"{chain.ledger_id.hex()}; give that file, or a copy of it"
            )
        entry = chain.entry
        if entry is None or ref.index == 0:
            raise Untrusted(
                f"{self._path}: expected entry {ref.index}, the anchor; the last is "
                f"{chain.last.index}"
            )
        if entry.hash != ref.entry_hash:
            raise Untrusted(f"{self._path}: entry {ref.index} has another hash: the ledger forked")
        if entry.root != root:
            raise Untrusted(f"{self._path}: entry {ref.index} holds another root")
        return AnchorProof(
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
            with filelock.locked(self._path) as fd:
                yield fd
        except OSError as error:
            raise AnchorUnavailable(f"ledger {self._path}: {error.strerror}") from error

    def _settled(self, fd: int, ts: int) -> tuple[LedgerMark, AnchorLedgerEntry]:
        """Return the mark and the last entry, after recovery from an interrupted write."""
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

    def _marked(self, fd: int, mark: LedgerMark) -> AnchorLedgerEntry:
        raw = os.pread(fd, mark.end - mark.start, mark.start)
        try:
            last = read_line(raw)
        except Malformed as error:
            raise Untrusted(
                f"{self._path}: entry {mark.index} was acknowledged and is missing: {error}; "
                "restore "
                "a copy of the ledger that has it"
            ) from error
        if (last.index, last.hash) != (mark.index, mark.entry_hash):
            raise Untrusted(
                f"{self._path}: entry {mark.index} is not the one that was acknowledged; restore "
                "a copy of the ledger that has it"
            )
        return last

    def _without_mark(self, fd: int, ts: int) -> tuple[LedgerMark, AnchorLedgerEntry]:
        """Start a new ledger, or rebuild a lost mark after verifying every entry."""
        if next(_lines(fd, 0), None) is None:
            if not may_be_torn(os.pread(fd, os.fstat(fd).st_size, 0)):
                raise Untrusted(
                    f"{self._path}: expected a ledger, got another file; give the ledger another "
                    "path"
                )
            self._cut(fd, 0)
            first = first_entry(ts, self._random(_NONCE_BYTES))
            mark = self._append(fd, first.hash, first, 0)
            durable.sync_directory(self._path.parent)
            return mark, first
        with os.fdopen(os.dup(fd), "rb") as file:
            chain = chain_of(self._path, file, None)
        return self._write_mark(chain.ledger_id, chain.last, _start(chain)), chain.last

    def _append(self, fd: int, ledger_id: bytes, entry: AnchorLedgerEntry, at: int) -> LedgerMark:
        durable.append(fd, at, entry.line())
        return self._write_mark(ledger_id, entry, at)

    def _write_mark(self, ledger_id: bytes, entry: AnchorLedgerEntry, start: int) -> LedgerMark:
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
    """Yield the complete lines from offset ``at`` on."""
    with os.fdopen(os.dup(fd), "rb") as file:
        file.seek(at)
        for line in iter(lambda: file.readline(MAX_LINE_BYTES + 1), b""):
            if not line.endswith(b"\n"):
                return
            yield line
