"""Whatever is changed or missing in a store is found by the check, and nothing is built of it."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hub.settings import load as load_settings
from hub.storage import retention
from hub.storage.datadir import DataDir
from recorder.archive.manifest import ArchivedFile, LabelManifest
from support.recorder import archive_carry
from veen.errors import Malformed, VeenError
from veen.objects.files import StoreLayout, path_of
from veen.objects.port import FileSettings, ObjectMissing, Store
from veen.objects.store import open_store
from veen.wire import cbor

DEEP = {"segment", "tail", "leaves"}
KINDS = (
    "manifest", "label manifest", "identity", "identity_sig", "key_map", "binding", "escrow",
    "index", "summary", "peaks", "checkpoint", "tombstone", *sorted(DEEP),
)  # fmt: skip


def keys_of(archive: Any, label: bytes) -> Iterator[tuple[str, str]]:
    """One key of every kind of object."""
    sha256, manifest = archive.latest_with_hash()
    result = archive.label(manifest, label)
    yield "manifest", archive.keys.version(sha256)
    yield "label manifest", archive.keys.version(manifest.ref(label).sha256)
    for name in ("identity", "identity_sig", "key_map", "binding", "escrow"):
        yield name, archive.keys.version(getattr(manifest, name))
    yield "index", archive.keys.version(result.index)
    for kind, part in (
        ("summary", ".summary"), ("peaks", "/peaks-"), ("checkpoint", "/checkpoint-"),
        ("tombstone", "/tombstone-"), ("leaves", "/leaves-"),
    ):  # fmt: skip
        yield (
            kind,
            archive.keys.file(next(piece.name for piece in result.pieces if part in piece.name)),
        )
    name = f"log/chunk-{label.hex()}-{21:020}-{30:020}.log"
    yield "segment", archive.keys.file(name)
    yield "tail", archive.keys.tail(label, result.tail.start_seq, result.tail.end_seq)


@pytest.fixture(scope="module")
def whole(
    stopped_hub: Any, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, dict[str, str]]:
    """A store with every kind of object, and a key of each."""
    root = tmp_path_factory.mktemp("whole")
    data = Path(shutil.copytree(stopped_hub.data, root / "data"))
    settings, later = load_settings(stopped_hub.toml), 4_000_000_000
    due = retention.plan_retention(DataDir(data), settings.retention, settings.streams, later)[:1]
    retention.prune(DataDir(data), due, limits=settings.limits, move_to=None, now=later)
    archive_carry.keygen(root / "me")
    store = open_store(FileSettings(root / "store"))
    archive_carry.push(data, store, archive_carry.sealer(root / "me"))
    return root / "store", dict(keys_of(archive_carry.archive_of(store), stopped_hub.label))


@pytest.fixture
def damaged(
    whole: tuple[Path, dict[str, str]], tmp_path: Path
) -> tuple[Store, Path, dict[str, str]]:
    root = Path(shutil.copytree(whole[0], tmp_path / "damaged"))
    return open_store(FileSettings(root)), root, whole[1]


def flip(path: Path) -> None:
    raw = bytearray(path.read_bytes())
    raw[len(raw) // 2] ^= 4
    path.chmod(0o600)
    path.write_bytes(raw)


def is_detected(store: Store, key: str, *, read_all: bool) -> bool:
    """Whether the check names the object; a broken manifest of the whole cannot even be read."""
    try:
        result = archive_carry.checked(store, read_all=read_all)
    except (VeenError, ObjectMissing) as error:
        return key in str(error)
    return any(flaw.key == key for flaw in result.flaws)


def test_a_whole_archive_has_no_flaw(whole: tuple[Path, dict[str, str]], stopped_hub: Any) -> None:
    store = open_store(FileSettings(whole[0]))
    assert set(whole[1]) == set(KINDS)
    for read_all in (False, True):
        result = archive_carry.checked(store, read_all=read_all)
        assert result.flaws == ()
        assert (result.labels, result.entries) == (4, stopped_hub.entries() + 1)


@pytest.mark.parametrize("kind", KINDS)
def test_a_changed_object_is_found(
    kind: str, damaged: tuple[Store, Path, dict[str, str]], tmp_path: Path
) -> None:
    store, root, keys = damaged
    flip(path_of(StoreLayout(root).objects, keys[kind]))
    assert is_detected(store, keys[kind], read_all=False) == (kind not in DEEP)
    assert is_detected(store, keys[kind], read_all=True)
    if kind not in {"escrow", "key_map"}:
        with pytest.raises(VeenError):
            archive_carry.restore(store, tmp_path / "to")
        assert not (tmp_path / "to").exists()
        assert not (tmp_path / "to.restoring").exists()


@pytest.mark.parametrize("kind", KINDS)
def test_a_missing_object_is_found_without_reading_segments(
    kind: str, damaged: tuple[Store, Path, dict[str, str]], tmp_path: Path
) -> None:
    store, root, keys = damaged
    path_of(StoreLayout(root).objects, keys[kind]).unlink()
    assert is_detected(store, keys[kind], read_all=False)
    if kind != "escrow":
        with pytest.raises(VeenError):
            archive_carry.restore(store, tmp_path / "to")
        assert not (tmp_path / "to").exists()


def test_a_shorter_segment_is_found_without_reading_it(
    damaged: tuple[Store, Path, dict[str, str]],
) -> None:
    store, root, keys = damaged
    path = path_of(StoreLayout(root).objects, keys["segment"])
    path.chmod(0o600)
    path.write_bytes(path.read_bytes()[:-1])
    assert is_detected(store, keys["segment"], read_all=False)


def test_the_command_tells_the_flaw_by_its_exit_code(
    damaged: tuple[Store, Path, dict[str, str]],
) -> None:
    _, root, keys = damaged
    path_of(StoreLayout(root).objects, keys["summary"]).unlink()
    done = archive_carry.veen("archive", "verify", "--store", root.as_uri(), "--json")
    assert done.returncode == 3
    document = json.loads(done.stdout)
    assert document["ok"] is False
    assert keys["summary"] in {item["key"] for item in document["flaws"]}


def _manifest(root: Path, label: bytes) -> Any:
    archive = archive_carry.archive_of(open_store(FileSettings(root)))
    return archive.label(archive.latest(), label)


@pytest.mark.parametrize(
    "name", ["../../etc/passwd", "/etc/passwd", "log/../keys/x", "hub-identity.cbor", "log/lock"]
)
def test_a_manifest_cannot_name_a_file_outside_of_its_label(
    name: str, whole: tuple[Path, dict[str, str]], stopped_hub: Any
) -> None:
    label = _manifest(whole[0], stopped_hub.label)
    pieces = [*label.pieces, ArchivedFile(name=name, size=1, sha256=bytes(32))]
    pieces.sort(key=lambda item: item.name)
    plain = {**label.plain(), 4: [piece.plain() for piece in pieces]}
    with pytest.raises(Malformed, match="a file that is not of the label"):
        LabelManifest.decode(cbor.dump(plain))


def test_a_manifest_with_a_gap_is_refused(
    whole: tuple[Path, dict[str, str]], stopped_hub: Any
) -> None:
    label = _manifest(whole[0], stopped_hub.label)
    plain = label.plain()
    with pytest.raises(VeenError, match="no segment holds stream_seq 11"):
        LabelManifest.decode(cbor.dump({**plain, 3: [plain[3][0], *plain[3][2:]]}))
    with pytest.raises(Malformed, match="root is not that of its segments"):
        LabelManifest.decode(cbor.dump({**plain, 5: bytes(32)}))
