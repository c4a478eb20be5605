"""Each way a recorder checkpoint can be wrong is found, under the name of its file."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from support.hub import driven_hub
from support.long_form import LONG
from veen.audit.report import AuditFault
from veen.crypto import SigningKey
from veen.recorder_checkpoint import EMPTY_ROOT, RecorderCheckpoint, log_root

PROFILE = bytes(32)


@pytest.fixture(scope="module")
def documented(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A stopped hub with three documents over a stream with sealed chunks and an open one."""
    bench = driven_hub.Bench(tmp_path_factory.mktemp("documented") / "hub")
    driven_hub.fill(bench)
    client = driven_hub.a_key("carol")
    token, label = bench.authorize(client), bench.label(driven_hub.STREAMS[0])
    for _ in range(3):
        bench.send(client, driven_hub.STREAMS[0], token, 5)
        bench.committer.checkpoint(label, bench.committer.log.label(label).head_seq, bench.now)
        bench.committer.recorder_checkpoint(PROFILE, bench.now, force=False)
    bench.stop()
    return bench


@pytest.fixture
def root(documented: Any, tmp_path: Path) -> Path:
    return Path(shutil.copytree(documented.root, tmp_path / "documented"))


def files(root: Path) -> list[Path]:
    return sorted((root / "recorder").iterdir())


def faults(root: Path) -> list[tuple[str, str]]:
    result: tuple[AuditFault, ...] = driven_hub.check(root).faults
    return [(item.code, Path(item.file).name) for item in result]


def forged(path: Path, key: SigningKey, **changes: Any) -> Path:
    """The document with changes, signed, under the name that it then has."""
    checkpoint = RecorderCheckpoint.decode(path.read_bytes())
    if "ends" in changes:
        changes["log_root"] = log_root(changes["ends"])
    new = replace(checkpoint, **changes).signed(key)
    target = path.with_name(f"checkpoint-{new.created_at:020d}-{new.checkpoint_id.hex()[:16]}.cbor")
    path.unlink()
    target.write_bytes(new.encode())
    return target


@pytest.fixture
def hub_key(root: Path) -> SigningKey:
    return SigningKey(driven_hub.the(root, "keys/*.key").read_bytes())


def test_finds_nothing_wrong_with_what_the_hub_wrote(root: Path) -> None:
    assert len(files(root)) == 3
    assert faults(root) == []


def test_finds_every_flipped_byte(root: Path) -> None:
    path = files(root)[1]
    whole = path.read_bytes()
    for at in range(0, len(whole), 1 if LONG else 97):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
        assert faults(root) == [("RECORDER", path.name)], at


@pytest.mark.parametrize("keep", [0, 1, 200, -1])
def test_finds_a_truncated_document(root: Path, keep: int) -> None:
    path = files(root)[2]
    path.write_bytes(path.read_bytes()[:keep])
    assert faults(root) == [("RECORDER", path.name)]


def test_finds_documents_in_each_other_s_place(root: Path) -> None:
    first, second, _ = files(root)
    left, right = first.read_bytes(), second.read_bytes()
    first.write_bytes(right)
    second.write_bytes(left)
    assert faults(root) == [("RECORDER", first.name), ("RECORDER", second.name)]


def test_finds_a_document_of_a_stranger(root: Path) -> None:
    stranger = SigningKey(bytes(32))
    path = forged(files(root)[1], stranger)
    assert faults(root) == [("RECORDER", path.name)]
    path = forged(path, stranger, hub_public=stranger.public)
    assert faults(root) == [("RECORDER", path.name)]


def test_finds_a_document_of_another_hub(root: Path, hub_key: SigningKey) -> None:
    path = forged(files(root)[1], hub_key, hub_id=bytes(32))
    assert faults(root) == [("RECORDER", path.name)]


def test_finds_a_document_that_goes_back(root: Path, hub_key: SigningKey) -> None:
    first, _, last = files(root)
    late = RecorderCheckpoint.decode(last.read_bytes()).created_at + 1
    path = forged(first, hub_key, created_at=late)
    assert faults(root) == [("RECORDER", path.name)]


def test_finds_an_end_that_the_log_does_not_have(root: Path, hub_key: SigningKey) -> None:
    """Signed by the hub itself, as is the checkpoint in it."""
    last = files(root)[2]
    recorder_checkpoint = RecorderCheckpoint.decode(last.read_bytes())
    place = next(
        n for n, checkpoint in enumerate(recorder_checkpoint.checkpoints) if checkpoint.upto_seq
    )
    other = replace(recorder_checkpoint.checkpoints[place], mmr_root=bytes([7]) * 32).signed(
        hub_key
    )
    ends = tuple(
        replace(end, mmr_root=other.mmr_root) if end.last_seq == other.upto_seq else end
        for end in recorder_checkpoint.ends
    )
    path = forged(last, hub_key, ends=ends, checkpoints=(other,))
    assert faults(root) == [("RECORDER", path.name)]


def test_finds_an_end_without_a_checkpoint(root: Path, hub_key: SigningKey) -> None:
    last = files(root)[2]
    checkpoint = RecorderCheckpoint.decode(last.read_bytes())
    beyond = replace(checkpoint.checkpoints[0], upto_seq=999).signed(hub_key)
    ends = tuple(replace(end, last_seq=999) if end.last_seq else end for end in checkpoint.ends)
    path = forged(last, hub_key, ends=ends, checkpoints=(beyond,))
    assert faults(root) == [("RECORDER", path.name)]


def test_does_not_blame_a_document_for_a_damaged_log(
    root: Path, forge: Callable[..., None]
) -> None:
    forge(driven_hub.the(root, "log/chunk-*-00000000000000000009-00000000000000000016.log"), _drop)
    result = faults(root)
    assert result
    assert "RECORDER" not in {code for code, _ in result}


def test_notes_what_is_no_document(root: Path) -> None:
    (root / "recorder" / "stray").write_bytes(b"")
    report = driven_hub.check(root)
    assert report.ok
    assert any("recorder/stray" in note for note in report.notes)


def test_an_empty_stream_has_no_root(documented: Any) -> None:
    checkpoint = RecorderCheckpoint.decode(files(documented.root)[0].read_bytes())
    assert all(end.mmr_root == EMPTY_ROOT for end in checkpoint.ends if not end.last_seq)


def _drop(entries: list[Any]) -> None:
    entries.pop(4)
