"""Names of the files of a log: one for each object, and no other name for it (spec 4.8.3)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from veen.log import layout
from veen.log.layout import ChunkName, OpenChunkName, RecorderName

LABELS = st.binary(min_size=32, max_size=32)
SEQS = st.integers(1, 2**64 - 1)
HEX = "ab" * 32
ONE = "0" * 19 + "1"


@given(LABELS, SEQS, SEQS)
def test_a_chunk_is_found_by_its_name(label: bytes, start: int, end: int) -> None:
    name = ChunkName(label, start, end)
    assert layout.parse_chunk(layout.chunk(name)) == name
    assert layout.parse_open_chunk(layout.chunk(name)) is None
    assert layout.parse_chunk(layout.summary(name)) is None


@given(LABELS, SEQS)
def test_an_open_chunk_is_found_by_its_name(label: bytes, start: int) -> None:
    name = OpenChunkName(label, start)
    assert layout.parse_open_chunk(layout.open_chunk(name)) == name
    assert layout.parse_chunk(layout.open_chunk(name)) is None


@given(LABELS, st.lists(SEQS, min_size=2, max_size=5))
def test_names_sort_as_their_numbers_do(label: bytes, seqs: list[int]) -> None:
    for name in (layout.peaks, layout.checkpoint):
        assert [name(label, seq) for seq in sorted(seqs)] == sorted(name(label, s) for s in seqs)


@given(SEQS, LABELS)
def test_a_recorder_checkpoint_is_found_by_its_name(created_at: int, whole_id: bytes) -> None:
    name = RecorderName.of(created_at, whole_id)
    assert layout.parse_recorder_checkpoint(layout.recorder_checkpoint(name)) == name
    assert layout.parse_checkpoint(layout.recorder_checkpoint(name)) is None


@given(LABELS, st.lists(SEQS, min_size=2, max_size=5, unique=True))
def test_recorder_checkpoints_sort_by_time(whole_id: bytes, times: list[int]) -> None:
    names = [layout.recorder_checkpoint(RecorderName.of(at, whole_id)) for at in sorted(times)]
    assert names == sorted(names)


@pytest.mark.parametrize(
    "path",
    [
        f"recorder/checkpoint-{ONE}-{HEX[:16]}.cbor\n",
        f"recorder/../recorder/checkpoint-{ONE}-{HEX[:16]}.cbor",
        f"recorder/checkpoint-{ONE}-{HEX[:16].upper()}.cbor",
        f"recorder/checkpoint-{ONE}-{HEX[:15]}.cbor",
        f"recorder/checkpoint-{ONE[1:]}-{HEX[:16]}.cbor",
        f"recorder/.checkpoint-{ONE}-{HEX[:16]}.cbor.new",
        f"log/checkpoint-{ONE}-{HEX[:16]}.cbor",
    ],
)
def test_no_other_path_names_a_recorder_checkpoint(path: str) -> None:
    assert layout.parse_recorder_checkpoint(path) is None


def test_the_names_are_those_the_specification_prints() -> None:
    label, chunk = b"\xab" * 32, ChunkName(b"\xab" * 32, 1, 2)
    assert layout.chunk(chunk) == f"log/chunk-{HEX}-{ONE}-{'0' * 19}2.log"
    assert layout.summary(chunk) == f"log/chunk-{HEX}-{ONE}-{'0' * 19}2.summary"
    assert layout.peaks(label, 1) == f"log/peaks-{HEX}-{ONE}.cbor"
    assert layout.checkpoint(label, 1) == f"log/checkpoint-{HEX}-{ONE}.cbor"
    assert layout.checkpoint_index(label) == f"log/checkpoint-index-{HEX}.cbor"


@pytest.mark.parametrize(
    "path",
    [
        f"log/chunk-{HEX}-{ONE}-{ONE}.log\n",
        f"/log/chunk-{HEX}-{ONE}-{ONE}.log",
        f"log/../log/chunk-{HEX}-{ONE}-{ONE}.log",
        f"log/chunk-{HEX.upper()}-{ONE}-{ONE}.log",
        f"log/chunk-{HEX[2:]}-{ONE}-{ONE}.log",
        f"log/chunk-{HEX}-{ONE[1:]}-{ONE}.log",
        f"log/chunk-{HEX}-+{ONE[1:]}-{ONE}.log",
        f"log/chunk-{HEX}-{ONE}-{ONE}.log.tmp",
        f"log/chunk-{HEX}-{ONE}-{ONE}xlog",
        "",
    ],
)
def test_no_other_path_names_a_chunk(path: str) -> None:
    assert layout.parse_chunk(path) is None


def test_digits_of_other_scripts_name_no_chunk() -> None:
    foreign = "\N{ARABIC-INDIC DIGIT ZERO}" * 19 + "\N{ARABIC-INDIC DIGIT ONE}"
    assert layout.parse_chunk(f"log/chunk-{HEX}-{foreign}-{ONE}.log") is None
    assert layout.parse_open_chunk(f"log/chunk-{HEX}-{foreign}.open") is None
