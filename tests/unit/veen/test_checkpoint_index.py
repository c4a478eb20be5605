"""The checkpoint index as it grows: torn lines, lines not counted yet, late lines."""

from __future__ import annotations

import hypothesis.strategies as st
import pytest
from hypothesis import given

from veen.digest import h
from veen.errors import Malformed
from veen.log import layout
from veen.log.checkpoint_index import (
    LINE_BYTES,
    decode_count,
    decode_growing,
    encode_count,
    encode_line,
    first_end,
    last_end,
    seq_before,
    whole_lines,
)
from veen.log.chunk import CheckpointRef, encode_checkpoint_index
from veen.wire.cbor import UINT_MAX

LABEL = h(b"label")
SEQS = st.integers(1, 10**20 - 1).map(lambda number: min(number, UINT_MAX))


def a_ref(upto: int) -> CheckpointRef:
    return CheckpointRef(
        mmr_root=h(str(upto).encode()),
        start_seq=max(1, upto - 7),
        end_seq=upto,
        peaks_ref=layout.peaks(LABEL, upto),
    )


def an_index(*uptos: int) -> dict[int, CheckpointRef]:
    return {upto: a_ref(upto) for upto in sorted(uptos)}


def test_a_line_cut_at_any_byte_is_not_there() -> None:
    whole, line = encode_checkpoint_index(an_index(8, 16)), encode_line(24, a_ref(24))
    for cut in range(len(line)):
        assert decode_growing(whole + line[:cut], b"") == an_index(8, 16)
        assert decode_growing(whole, line[:cut]) == an_index(8, 16)


def test_a_line_that_is_not_counted_yet_is_there() -> None:
    whole = encode_checkpoint_index(an_index(8, 16)) + encode_line(24, a_ref(24))
    assert decode_growing(whole, b"") == an_index(8, 16, 24)


def test_a_count_ahead_of_the_lines_is_refused() -> None:
    whole = encode_checkpoint_index(an_index(8, 16))
    for count in (0, 3, 4):
        with pytest.raises(Malformed):
            decode_growing(encode_count(count) + whole[1:], b"")


def test_lines_out_of_order_are_refused() -> None:
    lines = encode_line(16, a_ref(16)) + encode_line(8, a_ref(8))
    with pytest.raises(Malformed, match="out of order"):
        decode_growing(encode_count(2) + lines, b"")


def test_two_references_for_a_size_are_refused() -> None:
    with pytest.raises(Malformed, match="two references for 8"):
        decode_growing(encode_checkpoint_index(an_index(8)), encode_line(8, a_ref(9)))


def test_another_item_is_no_index() -> None:
    for raw in (b"\x80", b"\xbf\xff", b"\x61a"):
        with pytest.raises(Malformed):
            decode_growing(raw, b"")


@given(main=st.sets(SEQS, min_size=1, max_size=40), late=st.sets(SEQS, max_size=5))
def test_both_files_together_are_the_index(main: set[int], late: set[int]) -> None:
    lines = b"".join(encode_line(upto, a_ref(upto)) for upto in late)
    assert decode_growing(encode_checkpoint_index(an_index(*main)), lines) == an_index(*main, *late)


@given(uptos=st.sets(SEQS, min_size=1, max_size=300))
def test_the_file_is_its_count_and_its_lines(uptos: set[int]) -> None:
    lines = [encode_line(upto, a_ref(upto)) for upto in sorted(uptos)]
    raw = encode_checkpoint_index(an_index(*uptos))
    assert raw == encode_count(len(lines)) + b"".join(lines)
    assert max(map(len, lines)) <= LINE_BYTES
    count, start = decode_count(raw)
    ends = [line.end for line in whole_lines(raw, start)]
    assert count == len(ends)
    assert [seq_before(raw, end, LABEL) for end in ends] == sorted(uptos)
    assert last_end(raw, LABEL) == ends[-1]
    assert first_end(raw, LABEL) == ends[0]
    assert seq_before(raw, ends[-1] - 1, LABEL) is None
    assert seq_before(raw, ends[-1], h(b"another label")) is None
