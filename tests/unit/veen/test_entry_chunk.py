"""Log entries and chunks: no byte may change, and a torn tail is told from a false one (4.8)."""

from __future__ import annotations

import struct
import tracemalloc
from collections.abc import Callable
from hashlib import sha256
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from veen import mmr
from veen.errors import Malformed
from veen.limits import Limits
from veen.log.chunk import ChunkTally, PeakSnapshot, read_entries
from veen.log.entry import CutShort, Entry, EntryHeader, open_entry, read_entry
from veen.msg import Msg
from veen.receipt import Receipt

if TYPE_CHECKING:
    from support.veen.fixtures import Framed

LIMITS = Limits()
HEADER = struct.Struct(">BB32sQII32s")
Frames = Callable[..., "Framed"]


def opened(raw: bytes) -> Any:
    return open_entry(*read_entry(raw, 0, LIMITS))


def test_an_entry_survives_its_frame(a_framed: Frames) -> None:
    for seq in (1, 255, 2**32, 2**64 - 1):
        framed = a_framed(seq)
        header, entry = read_entry(framed.raw, 0, LIMITS)
        assert (entry, header.stream_seq, header.whole_size) == (framed.entry, seq, len(framed.raw))
        assert opened(framed.raw).msg.encode() == framed.entry.msg_bytes


def test_the_frame_is_the_one_the_specification_prints(a_framed: Frames) -> None:
    framed = a_framed(7)
    body = framed.entry.msg_bytes + framed.entry.receipt_bytes
    sizes = len(framed.entry.msg_bytes), len(framed.entry.receipt_bytes)
    label = framed.entry.msg().label
    header = HEADER.pack(1, 0, label, 7, *sizes, sha256(b"veen/entry" + body).digest())
    assert framed.raw == header + body


@pytest.mark.parametrize("mask", [0x01, 0x80, 0xFF])
def test_refuses_a_change_of_any_byte(a_framed: Frames, mask: int) -> None:
    raw = a_framed().raw
    for at in range(len(raw)):
        with pytest.raises(Malformed):
            opened(raw[:at] + bytes([raw[at] ^ mask]) + raw[at + 1 :])


def test_refuses_a_change_of_any_byte_before_another_entry(a_framed: Frames) -> None:
    raw, after = a_framed(1).raw, a_framed(2).raw
    for at in range(82):
        with pytest.raises(Malformed):
            opened(raw[:at] + bytes([raw[at] ^ 1]) + raw[at + 1 :] + after)


def test_every_truncation_is_cut_short(a_framed: Frames) -> None:
    raw = a_framed().raw
    for end in range(len(raw)):
        with pytest.raises(CutShort):
            read_entry(raw[:end], 0, LIMITS)


@pytest.mark.parametrize(("version", "flags"), [(0, 0), (2, 0), (255, 0), (1, 1), (1, 0x80)])
def test_refuses_another_version_or_a_flag(a_framed: Frames, version: int, flags: int) -> None:
    raw = bytes([version, flags]) + a_framed().raw[2:]
    with pytest.raises(Malformed) as refusal:
        read_entry(raw, 0, LIMITS)
    assert type(refusal.value) is Malformed


@pytest.mark.parametrize(
    ("msg_len", "receipt_len"), [(2**32 - 1, 0), (0, 2**32 - 1), (1_048_577, 0), (0, 257)]
)
def test_refuses_lengths_beyond_the_limits_before_it_uses_them(
    msg_len: int, receipt_len: int
) -> None:
    raw = HEADER.pack(1, 0, bytes(32), 1, msg_len, receipt_len, bytes(32))
    tracemalloc.start()
    with pytest.raises(Malformed) as refusal:
        EntryHeader.read(raw, 0, LIMITS)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert type(refusal.value) is Malformed
    assert peak < 65_536


def test_lengths_up_to_the_limits_are_read() -> None:
    raw = HEADER.pack(1, 0, bytes(32), 1, 1_048_576, 256, bytes(32))
    assert EntryHeader.read(raw, 0, LIMITS).whole_size == LIMITS.largest_entry


def test_refuses_a_border_moved_between_message_and_receipt(a_framed: Frames) -> None:
    entry = a_framed().entry
    both = entry.msg_bytes + entry.receipt_bytes
    for border in (0, 1, len(entry.msg_bytes) - 1, len(entry.msg_bytes) + 1, len(both) - 1):
        moved = Entry(both[:border], both[border:])
        assert moved.entry_hash() == entry.entry_hash()
        with pytest.raises(Malformed):
            opened(moved.encode(entry.msg().label, 1))


def test_refuses_a_header_that_names_another_entry(
    a_framed: Frames, a_msg: Callable[..., Msg], a_receipt: Callable[..., Receipt]
) -> None:
    msg = a_msg()
    entry = Entry(msg.encode(), a_receipt(msg).encode())
    other_label = Entry(a_msg(label=b"o" * 32).encode(), entry.receipt_bytes)
    for raw in (
        entry.encode(b"o" * 32, 1), entry.encode(msg.label, 2), other_label.encode(msg.label, 1),
        other_label.encode(b"o" * 32, 1),
    ):  # fmt: skip
        with pytest.raises(Malformed):
            opened(raw)


@given(st.binary(max_size=200))
def test_any_bytes_are_malformed_or_an_entry(raw: bytes) -> None:
    with pytest.raises(Malformed):
        read_entry(raw, 0, LIMITS)


def test_a_chunk_gives_back_its_entries_in_order_with_their_offsets(a_framed: Frames) -> None:
    frames = [a_framed(seq) for seq in range(1, 6)]
    raw = b"".join(framed.raw for framed in frames)
    entries = list(read_entries(raw, LIMITS))
    assert [entry for _, _, entry in entries] == [framed.entry for framed in frames]
    assert [raw[at : at + head.whole_size] for at, head, _ in entries] == [f.raw for f in frames]


def test_a_chunk_cut_anywhere_but_at_a_border_is_cut_short(a_framed: Frames) -> None:
    item, two = a_framed(1).raw, a_framed(2).raw
    for end in range(len(item) + 1, len(item) + len(two)):
        entries = read_entries((item + two)[:end], LIMITS)
        assert next(entries)[1].stream_seq == 1
        with pytest.raises(CutShort):
            next(entries)


@given(st.integers(1, 2**40), st.lists(st.integers(0, 400), min_size=1, max_size=40))
def test_a_tally_adds_up_to_the_summary_of_the_chunk(start: int, sizes: list[int]) -> None:
    hashes = [sha256(b"%d %d" % (at, size)).digest() for at, size in enumerate(sizes)]
    tally = ChunkTally.starting_at(start)
    for size, entry_hash in zip(sizes, hashes, strict=True):
        tally = tally.plus(82 + size, entry_hash)
    summary = tally.summary(b"l" * 32, b"r" * 32)
    assert (summary.start_seq, summary.end_seq) == (start, start + len(sizes) - 1)
    assert summary.entry_hashes_root == mmr.Peaks(len(hashes), mmr.peaks_of(hashes)).root()
    assert summary.total_bytes == sum(82 + size for size in sizes)


SMALL = Limits(max_msg_bytes=400, max_chunk_bytes=1000, max_checkpoint_interval=4)


@given(st.lists(st.integers(82, SMALL.largest_entry), max_size=60))
def test_chunks_roll_where_the_next_entry_does_not_fit(sizes: list[int]) -> None:
    chunks: list[list[int]] = [[]]
    for size in sizes:
        held = chunks[-1]
        is_full = bool(held) and (sum(held) + size > 1000 or len(held) == 4)
        tally = ChunkTally(1, len(held), sum(held), mmr.EMPTY)
        assert tally.must_roll(size, SMALL) == is_full
        chunks.append([size]) if is_full else held.append(size)
    assert all(sum(chunk) <= 1000 and len(chunk) <= 4 for chunk in chunks)


@given(st.integers(0, 300))
def test_a_snapshot_gives_back_the_peaks(size: int) -> None:
    peaks = mmr.Peaks(size, tuple(bytes([n]) * 32 for n in range(size.bit_count())))
    snapshot = PeakSnapshot.decode(PeakSnapshot.of(b"l" * 32, peaks).encode())
    assert snapshot.to_peaks() == peaks
