"""Files beside the chunks: each is held against the log, to the byte where that can be told."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from support.hub import driven_hub
from veen.checkpoint import Checkpoint
from veen.crypto import SigningKey
from veen.hub_identity import CheckpointBinding
from veen.log.chunk import (
    ChunkSummary,
    PeakSnapshot,
    decode_checkpoint_index,
    encode_checkpoint_index,
)
from veen.wire import cbor

CHUNK = "log/chunk-*-00000000000000000009-00000000000000000016.log"
END = "00000000000000000016"


def flipped(path: Path, at: int) -> None:
    raw = bytearray(path.read_bytes())
    raw[at] ^= 0x04
    path.write_bytes(raw)


@pytest.fixture
def faults(hub_copy: Path) -> Callable[[], list[tuple[str, int, str]]]:
    def run() -> list[tuple[str, int, str]]:
        return [
            (fault.file, fault.offset, fault.code) for fault in driven_hub.check(hub_copy).faults
        ]

    return run


def test_a_missing_chunk_is_named(hub_copy: Path, faults: Any) -> None:
    path = driven_hub.the(hub_copy, CHUNK)
    path.unlink()
    assert faults() == [(f"log/{path.name}", 0, "MISSING")]


def test_the_first_chunk_is_missing(hub_copy: Path, faults: Any) -> None:
    stem = driven_hub.the(hub_copy, CHUNK).name.split("-")[1]
    path = driven_hub.the(hub_copy, f"log/chunk-{stem}-00000000000000000001-*.log")
    path.unlink()
    assert faults() == [(f"log/{path.name}", 0, "MISSING")]


def test_the_open_chunk_is_missing(hub_copy: Path, faults: Any) -> None:
    path = driven_hub.the(hub_copy, "log/chunk-*-00000000000000000017.open")
    path.unlink()
    ((file, _, code),) = faults()
    assert file.startswith(f"log/{path.name.removesuffix('.open')}")
    assert code == "MISSING"


def test_every_file_of_a_label_is_missing(hub_copy: Path, faults: Any) -> None:
    label = driven_hub.the(hub_copy, CHUNK).name.split("-")[1]
    for path in hub_copy.glob(f"log/*{label}*"):
        path.unlink()
    assert {code for _, _, code in faults()} == {"MISSING", "BINDING"}


@pytest.mark.parametrize("name", ["10-16", "09-15", "09-17", "01-16"])
def test_a_renamed_chunk(hub_copy: Path, faults: Any, name: str) -> None:
    path = driven_hub.the(hub_copy, CHUNK)
    first, last = name.split("-")
    new = path.name.replace("09-", f"{first}-").replace("16.log", f"{last}.log")
    path.rename(path.with_name(new))
    result = faults()
    assert (f"log/{new}", "NAME") in {(file, code) for file, _, code in result}


@pytest.mark.parametrize("at", [0, 5, 36, 38, 72, 80, 110])
@pytest.mark.parametrize("kind", ["chunk-*.summary", f"peaks-*-{END}.cbor"])
def test_a_flip_in_a_derivable_file_is_found_to_the_byte(
    hub_copy: Path, faults: Any, kind: str, at: int
) -> None:
    path = driven_hub.the(hub_copy, f"log/{kind}")
    if at >= path.stat().st_size:
        at = path.stat().st_size - 1
    flipped(path, at)
    code = "SUMMARY" if path.suffix == ".summary" else "PEAKS"
    assert faults() == [(f"log/{path.name}", at, code)]


def test_a_forged_summary(hub_copy: Path, faults: Any) -> None:
    path = driven_hub.the(hub_copy, "log/chunk-*.summary")
    forged = replace(ChunkSummary.decode(path.read_bytes()), entry_hashes_root=bytes(32))
    path.write_bytes(forged.encode())
    ((file, at, code),) = faults()
    assert (file, code) == (f"log/{path.name}", "SUMMARY")
    assert path.read_bytes()[at:] == bytes(32)


def test_forged_peaks(hub_copy: Path, faults: Any) -> None:
    path = driven_hub.the(hub_copy, f"log/peaks-*-{END}.cbor")
    forged = replace(PeakSnapshot.decode(path.read_bytes()), peaks=(bytes(32),))
    path.write_bytes(forged.encode())
    assert [(file, code) for file, _, code in faults()] == [(f"log/{path.name}", "PEAKS")]


@pytest.mark.parametrize(
    "changes", [{"mmr_root": bytes(32)}, {"epoch": 7}, {"label_prev": bytes(32)}, {"upto_seq": 3}]
)
def test_a_forged_checkpoint_that_the_hub_signed(
    hub_copy: Path, faults: Any, forged_hub_key: SigningKey, changes: dict[str, Any]
) -> None:
    path = driven_hub.the(hub_copy, f"log/checkpoint-*-{END}.cbor")
    forged = replace(Checkpoint.decode(path.read_bytes()), **changes)
    path.write_bytes(forged.signed(forged_hub_key).encode())
    assert [(file, code) for file, _, code in faults()] == [(f"log/{path.name}", "CHECKPOINT")]


def test_a_checkpoint_that_another_signed(hub_copy: Path, faults: Any) -> None:
    path = driven_hub.the(hub_copy, f"log/checkpoint-*-{END}.cbor")
    path.write_bytes(Checkpoint.decode(path.read_bytes()).signed(SigningKey(bytes(32))).encode())
    assert [(file, code) for file, _, code in faults()] == [(f"log/{path.name}", "SIG")]


def test_a_witness_that_nobody_knows(hub_copy: Path, faults: Any) -> None:
    path = driven_hub.the(hub_copy, f"log/checkpoint-*-{END}.cbor")
    witnessed = Checkpoint.decode(path.read_bytes()).witnessed(SigningKey(bytes(32)))
    path.write_bytes(witnessed.encode())
    assert [(file, code) for file, _, code in faults()] == [(f"log/{path.name}", "SIG")]


@pytest.mark.parametrize(
    "kind",
    ["chunk-*.summary", "peaks-*", "checkpoint-[0-9a-f]*-*08.cbor", "checkpoint-*-*11.cbor"],
)
def test_a_missing_artefact(hub_copy: Path, faults: Any, kind: str) -> None:
    path = driven_hub.the(hub_copy, f"log/{kind}")
    path.unlink()
    assert faults() == [(f"log/{path.name}", 0, "MISSING")]


@pytest.mark.parametrize(
    "kind",
    ["log/chunk-*.log", "log/*.summary", "log/peaks-*", "log/checkpoint-*", "hub-*", "keys/*"],
)
def test_an_emptied_file(hub_copy: Path, kind: str) -> None:
    path = driven_hub.the(hub_copy, kind)
    path.write_bytes(b"")
    report = driven_hub.check(hub_copy)
    assert {fault.file for fault in report.faults} == {str(path.relative_to(hub_copy))}


def test_a_forged_checkpoint_index(hub_copy: Path, faults: Any) -> None:
    path = driven_hub.the(hub_copy, "log/checkpoint-index-*")
    index = decode_checkpoint_index(path.read_bytes())
    index[max(index)] = replace(index[max(index)], mmr_root=bytes(32))
    path.write_bytes(encode_checkpoint_index(index))
    assert [(file, code) for file, _, code in faults()] == [(f"log/{path.name}", "INDEX")]


def test_a_binding_forged_dropped_or_added(hub_copy: Path) -> None:
    path = hub_copy / "checkpoint-binding.cborseq"
    lines = [CheckpointBinding.decode(item) for item in cbor.decode_sequence(path.read_bytes())]
    forged = replace(lines[1], mmr_root=bytes(32))
    added = replace(lines[2], upto_seq=5)
    path.write_bytes(b"".join(line.encode() for line in [lines[0], forged, added, *lines[3:]]))
    result = [(fault.offset, fault.code) for fault in driven_hub.check(hub_copy).faults]
    size = len(lines[0].encode())
    assert [(at // size, code) for at, code in result] == [(1, "BINDING"), (2, "BINDING")]
    path.write_bytes(b"".join(line.encode() for line in lines[1:]))
    assert [fault.code for fault in driven_hub.check(hub_copy).faults] == ["BINDING"]


@pytest.mark.parametrize("name", ["hub-identity.cbor", "hub-identity.sig", "hub-key-map.cbor"])
def test_a_missing_identity_document(hub_copy: Path, faults: Any, name: str) -> None:
    (hub_copy / name).unlink()
    assert faults() == [(name, 0, "MISSING")]


def test_the_identity_of_another_hub(hub_copy: Path, tmp_path: Path) -> None:
    other = driven_hub.Bench(tmp_path / "other", now=driven_hub.START + 1)
    other.stop()
    shutil.copy(tmp_path / "other" / "hub-identity.cbor", hub_copy)
    assert driven_hub.check(hub_copy).faults[0].file == "hub-identity.sig"


def test_faults_of_several_kinds_at_once(hub_copy: Path, faults: Any) -> None:
    chunk, peaks = (
        driven_hub.the(hub_copy, CHUNK),
        driven_hub.the(hub_copy, f"log/peaks-*-{END}.cbor"),
    )
    summary, key = (
        driven_hub.the(hub_copy, "log/chunk-*.summary"),
        driven_hub.the(hub_copy, "keys/*.key"),
    )
    flipped(chunk, 600)
    flipped(peaks, 60)
    flipped(summary, 60)
    flipped(key, 3)
    flipped(hub_copy / "checkpoint-binding.cborseq", 20)
    assert set(faults()) == {
        (f"log/{chunk.name}", 540, "FRAME"),
        (f"log/{peaks.name}", 60, "PEAKS"),
        (f"log/{summary.name}", 60, "SUMMARY"),
        (f"keys/{key.name}", 0, "KEY"),
        ("checkpoint-binding.cborseq", 20, "BINDING"),
    }
