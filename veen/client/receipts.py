"""Receipts of a client: ``receipts.cborseq`` and the verification of a receipt (spec 15).

The file is a CBOR sequence (RFC 8742), read in bounded memory. The sender appends to it without
sync: it is derived, and a resync rebuilds it from the log. ``verify_receipt`` checks a receipt
offline, ``verify_with_hub`` against the hub's log.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final, TypeVar

from veen.client.log_head import LabelLogRef, read_log_head
from veen.client.session import Session
from veen.errors import Malformed, Untrusted
from veen.hub_identity import HubIdentity
from veen.invariants import Violation
from veen.label import EpochLabels
from veen.limits import MAX_RECEIPT_BYTES, Limits
from veen.mmr import EMPTY
from veen.msg import Msg
from veen.proofs import verify_consistency
from veen.receipt import Receipt
from veen.system import durable
from veen.wire import cbor
from veen.wire.objects import WireObject

W = TypeVar("W", bound=WireObject)

MAX_ITEM_BYTES: Final = Limits().max_msg_bytes
_BLOCK: Final = 1 << 18
RECEIPTS_FILE: Final = "receipts.cborseq"
_CHUNK: Final = 1 << 20


def cbor_items(path: Path, kind: type[W]) -> Iterator[tuple[int, W]]:
    """Every item of a file with its offset.

    A missing file has none. A file that ends within an item is Malformed.
    """
    buffer, begin = b"", 0
    try:
        with path.open("rb") as file:
            while block := file.read(_BLOCK):
                buffer += block
                at = 0
                while (end := _end(buffer, at)) is not None:
                    yield begin + at, _decoded(path, begin + at, kind, buffer[at:end])
                    at = end
                buffer, begin = buffer[at:], begin + at
                if len(buffer) > MAX_ITEM_BYTES:
                    raise Malformed(f"{path}: an item of more than {MAX_ITEM_BYTES} bytes")
    except FileNotFoundError:
        return
    if buffer:
        raise Malformed(f"{path} is truncated within the item at byte {begin}")


def cbor_item_at(path: Path, offset: int, kind: type[W]) -> W:
    """The item at an offset."""
    with path.open("rb") as file:
        file.seek(offset)
        buffer = file.read(_BLOCK)
        while (end := _end(buffer, 0)) is None:
            block = file.read(_BLOCK)
            if not block or len(buffer) > MAX_ITEM_BYTES:
                raise Malformed(f"{path}: truncated item at byte {offset}")
            buffer += block
    return _decoded(path, offset, kind, buffer[:end])


def _end(buffer: bytes, at: int) -> int | None:
    """The end of the item at ``at``, or None if it is incomplete."""
    if at >= len(buffer):
        return None
    try:
        return cbor.skip(buffer, at)
    except Malformed:
        return None


def _decoded(path: Path, offset: int, kind: type[W], raw: bytes) -> W:
    try:
        return kind.decode(raw)
    except Malformed as error:
        raise Malformed(f"{path}, byte {offset}: {error}") from error


class Rebuild:
    """Receipts read from a log, which replace some of the stored ones."""

    def __init__(self, spool: BinaryIO) -> None:
        self._spool = spool
        self.count = 0

    def add(self, receipt: Receipt) -> None:
        self._spool.write(receipt.encode())
        self.count += 1


@contextmanager
def rebuilding_receipts(root: Path, keeps: Callable[[Receipt], bool]) -> Iterator[Rebuild]:
    """Replace the file with the receipts added in the block, unless it raises.

    Stored receipts for which ``keeps`` is true stay.
    """
    path, new = root / RECEIPTS_FILE, root / f".{RECEIPTS_FILE}.new"
    new.unlink(missing_ok=True)
    try:
        with new.open("xb") as file:
            new.chmod(durable.FILE_MODE)
            rebuild = Rebuild(file)
            yield rebuild
            if rebuild.count:
                _copy(path, file, keeps)
                file.flush()
                durable.sync(file.fileno())
        if rebuild.count:
            durable.rename(new, path)
    finally:
        new.unlink(missing_ok=True)


def _copy(path: Path, into: BinaryIO, keeps: Callable[[Receipt], bool]) -> None:
    """Copy stored receipts up to a torn end."""
    with suppress(Malformed):
        for _, receipt in cbor_items(path, Receipt):
            if keeps(receipt):
                into.write(receipt.encode())


class ReceiptBook:
    """Appends receipts to the file; nothing is synced."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._is_whole = False

    def append(self, receipts: Iterable[Receipt]) -> None:
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW
        handle = os.open(self._path, flags, durable.FILE_MODE)
        try:
            size = os.fstat(handle).st_size
            if not self._is_whole:
                size = _repair_end(handle, size)
                self._is_whole = True
            durable.write_at(handle, b"".join(receipt.encode() for receipt in receipts), size)
        finally:
            os.close(handle)


def _repair_end(handle: int, size: int) -> int:
    """Cut off an incomplete last receipt; the size of the file."""
    tail = os.pread(handle, MAX_RECEIPT_BYTES, max(0, size - MAX_RECEIPT_BYTES))
    if size == 0 or any(_is_receipt(tail[start:]) for start in range(len(tail))):
        return size
    whole = _whole(handle, size)
    os.ftruncate(handle, whole)
    return whole


def _is_receipt(raw: bytes) -> bool:
    try:
        Receipt.decode(raw)
    except Malformed:
        return False
    return True


def _whole(handle: int, size: int) -> int:
    at = 0
    while at < size:
        chunk = os.pread(handle, _CHUNK, at)
        end = _whole_items(chunk)
        if end == 0:
            break
        at += end
    return at


def _whole_items(chunk: bytes) -> int:
    at = 0
    try:
        while at < len(chunk):
            end = cbor.skip(chunk, at)
            Receipt.decode(chunk[at:end])
            at = end
    except Malformed:
        return at
    return at


@dataclass(frozen=True, slots=True, kw_only=True)
class ReceiptVerdict:
    """``checked`` lists what was verified; ``head_seq`` is the size of the hub's log, if asked."""

    receipt: Receipt
    checked: tuple[str, ...]
    head_seq: int | None = None


def verify_receipt(
    receipt: Receipt, msg: Msg | None, hub: HubIdentity, labels: EpochLabels | None
) -> ReceiptVerdict:
    """Verify a receipt without a hub; raise the first violation.

    I3 needs the history before a receipt, so it is checked for the first entry alone.
    """
    checked = ["signature"]
    hub.verify_receipt(receipt)
    if labels is not None:
        _verify_label(receipt, labels)
        checked.append("label")
    if msg is not None:
        _verify_msg(receipt, msg)
        checked += ["I1", "I2", "message signature"]
    if receipt.stream_seq == 1:
        if EMPTY.append(receipt.leaf_hash).root() != receipt.mmr_root:
            raise Violation("I3", 1, "mmr_root is not the root of the first leaf alone")
        checked.append("I3")
    return ReceiptVerdict(receipt=receipt, checked=tuple(checked))


def verify_with_hub(
    session: Session, receipt: Receipt, msg: Msg | None, log: LabelLogRef
) -> ReceiptVerdict:
    """Verify a receipt, I3 by the hub's proof, and that the hub's log still has the entry."""
    session.verify_receipt(receipt)
    offline = verify_receipt(receipt, msg, session.hub, log.labels)
    seq = receipt.stream_seq
    proof = session.api.proof(log.label, seq)
    try:
        proof.verify(leaf_hash=receipt.leaf_hash, stream_seq=seq, root=receipt.mmr_root)
    except Untrusted as error:
        raise Violation("I3", seq, str(error)) from error
    end = read_log_head(session, log, seq)
    if end is None:
        raise Untrusted(f"{log.at(seq)}: the hub no longer has this entry")
    _verify_at(session, log, receipt, end)
    checked = dict.fromkeys((*offline.checked, "I3", "consistency", "inclusion"))
    return ReceiptVerdict(receipt=receipt, checked=tuple(checked), head_seq=end.stream_seq)


def _verify_label(receipt: Receipt, labels: EpochLabels) -> None:
    near = labels.accepted(receipt.hub_ts, Limits().max_epoch_skew_sec)
    if receipt.label not in near:
        raise Violation(
            "I12", receipt.stream_seq, "the label does not belong to this stream at hub_ts"
        )


def _verify_msg(receipt: Receipt, msg: Msg) -> None:
    seq = receipt.stream_seq
    if not msg.ct_hash_matches():
        raise Violation("I1", seq, "ct_hash is not the hash of the ciphertext")
    if (msg.label, msg.leaf_hash()) != (receipt.label, receipt.leaf_hash):
        raise Violation("I2", seq, "the receipt belongs to another message")
    if not msg.signature_is_valid():
        raise Violation("SIG", seq, "the message is not signed by its client_id")


def _verify_at(session: Session, log: LabelLogRef, receipt: Receipt, end: Receipt) -> None:
    seq, size = receipt.stream_seq, end.stream_seq
    session.api.inclusion(log.label, seq, size).verify(
        leaf_hash=receipt.leaf_hash, stream_seq=seq, size=size, root=end.mmr_root
    )
    verify_consistency(
        session.api.consistency(log.label, seq, size),
        old_size=seq,
        old_root=receipt.mmr_root,
        new_size=size,
        new_root=end.mmr_root,
    )
