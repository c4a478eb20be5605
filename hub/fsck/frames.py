"""The frames of a chunk, read so that a bad one does not hide those behind it (spec 4.8.1)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from veen.entry import FramedEntry, open_entry, read_entry
from veen.errors import Malformed
from veen.limits import ENTRY_HEADER_BYTES, Limits
from veen.msg import Msg
from veen.receipt import Receipt


@dataclass(frozen=True, slots=True)
class Good:
    """A frame whose lengths, hash and objects agree."""

    at: int
    framed: FramedEntry


@dataclass(frozen=True, slots=True)
class Bad:
    """A frame that is not right, up to where the next one begins, and what can be read of it."""

    at: int
    end: int
    why: str
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
    begin = b"\x01\x00" + label
    msg_len = int.from_bytes(raw[at + 42 : at + 46], "big")
    receipt_len = int.from_bytes(raw[at + 46 : at + 50], "big")
    middle = at + ENTRY_HEADER_BYTES + msg_len
    end = middle + receipt_len
    if end != len(raw) and not raw.startswith(begin, end):
        found = raw.find(begin, at + 1)
        end = found if found >= 0 else len(raw)
        middle = min(middle, end)
    body = raw[at + ENTRY_HEADER_BYTES : middle]
    return Bad(at, end, why, _msg(body), _receipt(raw[middle:end]))


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
