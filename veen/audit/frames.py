"""The frames of a chunk, read so that a bad one does not hide those behind it (spec 4.8.1)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from veen import cbor
from veen.entry import FramedEntry, open_entry, read_entry
from veen.errors import Malformed
from veen.limits import ENTRY_HEADER_BYTES, Limits
from veen.msg import Msg
from veen.receipt import Receipt


class Good(NamedTuple):
    """A frame whose lengths, hash and objects agree."""

    at: int
    framed: FramedEntry


@dataclass(frozen=True, slots=True)
class Bad:
    """A frame that is not right, up to where the next one begins, and what can be read of it."""

    at: int
    end: int
    why: str
    claimed_seq: int
    """What stands in its header for stream_seq: a hint, nothing signed."""
    msg: Msg | None
    receipt: Receipt | None


def split(raw: bytes, label: bytes, limits: Limits) -> Iterator[Good | Bad]:
    at = 0
    while at < len(raw):
        try:
            framed = _framed(raw, at, label, limits)
        except Malformed as error:
            bad = _bad(raw, at, label, str(error))
            yield bad
            at = bad.end
        else:
            yield Good(at, framed)
            at += framed.header.whole_size


def _framed(raw: bytes, at: int, label: bytes, limits: Limits) -> FramedEntry:
    framed = open_entry(*read_entry(raw, at, limits))
    if framed.header.label != label:
        raise Malformed("an entry of another label")
    return framed


def _bad(raw: bytes, at: int, label: bytes, why: str) -> Bad:
    seq = int.from_bytes(raw[at + 34 : at + 42], "big")
    msg_len = int.from_bytes(raw[at + 42 : at + 46], "big")
    receipt_len = int.from_bytes(raw[at + 46 : at + 50], "big")
    start = at + ENTRY_HEADER_BYTES
    end = start + msg_len + receipt_len
    if _ends_there(raw, start + msg_len, end, label):
        cut = msg_len
    else:
        found = raw.find(_begin(label), at + 1)
        end = found if found >= 0 else len(raw)
        cut = _item_end(raw[start:end])
    body = raw[start:end]
    return Bad(at, end, why, seq, _msg(body[:cut]), _receipt(body[cut:]))


def _begin(label: bytes) -> bytes:
    return b"\x01\x00" + label


def _ends_there(raw: bytes, middle: int, end: int, label: bytes) -> bool:
    """Whether the lengths of a frame can be trusted: by what follows it, or by its receipt."""
    if end > len(raw):
        return False
    is_followed = end == len(raw) or raw.startswith(_begin(label), end)
    return is_followed or _receipt(raw[middle:end]) is not None


def _item_end(body: bytes) -> int:
    """Where the message ends by its own bytes, whatever the header says."""
    try:
        return cbor.skip(body, 0)
    except Malformed:
        return len(body)


def _msg(raw: bytes) -> Msg | None:
    try:
        return Msg.decode(raw)
    except Malformed:
        return None


def _receipt(raw: bytes) -> Receipt | None:
    try:
        return Receipt.decode(raw)
    except Malformed:
        return None
