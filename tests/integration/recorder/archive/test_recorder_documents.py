"""Recorder checkpoints travel with the log they speak of, and none of them gets lost on the way."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from hub.admission import Gate
from hub.sequencer.committer import Committer
from hub.settings import load as load_settings
from hub.storage import identity
from hub.storage.datadir import DataDir, DataDirLock
from hub.storage.log import HubLog
from recorder.archive.audit import AuditTerms
from recorder.archive.clone import clone
from recorder.archive.log_files import in_archive
from recorder.archive.manifest import NO_DOCUMENTS, ArchivedFile, RecorderManifest
from recorder.archive.push import OldCopy
from recorder.archive.store import status
from spark_jobs.verify_log import audit, here
from support.recorder import archive_carry
from veen.audit.context import Depth
from veen.errors import Malformed, Untrusted, VeenError
from veen.objects.files import StoreLayout, path_of
from veen.objects.port import FileSettings, Store
from veen.objects.store import open_store, store_ref
from veen.recorder_checkpoint import RecorderCheckpoint

PROFILE = bytes(32)


def make_documents(data: Path, toml: Path, label: bytes) -> list[RecorderCheckpoint]:
    """Two more of them, as the hub's own sequencer makes them: at four entries, then at seven."""
    settings, datadir = load_settings(toml), DataDir(data)
    datadir.create()
    lock = DataDirLock(datadir)
    log = HubLog(datadir, identity.load(datadir), settings.limits, settings.streams)
    committer = Committer(log, Gate(False, frozenset()))
    result = []
    for upto in (4, 7):
        committer.checkpoint(label, upto, 0)
        result.append(committer.recorder_checkpoint(PROFILE, 0, force=False))
    log.close()
    lock.release()
    return result


@pytest.fixture
def documents(stopped_hub: Any, hub_data: Path) -> list[RecorderCheckpoint]:
    return make_documents(hub_data, stopped_hub.toml, stopped_hub.writers["record/b"].label)


def names(data: Path) -> list[str]:
    return sorted(DataDir(data).recorder_names())


def key_of(store: Store, name: str) -> str:
    return str(archive_carry.archive_of(store).keys.file(name))


def test_refuses_a_damaged_document(
    hub_data: Path, documents: list[RecorderCheckpoint], file_store: Store
) -> None:
    first, second = (hub_data / name for name in names(hub_data))
    whole = first.read_bytes()
    for wrong in (whole[:-1], b"", second.read_bytes()):
        first.write_bytes(wrong)
        with pytest.raises(Untrusted, match="veen hub verify"):
            archive_carry.push(hub_data, file_store)
    first.write_bytes(whole)
    archive_carry.push(hub_data, file_store)
    assert archive_carry.checked(file_store).ok


def test_refuses_a_directory_that_lost_a_document(
    hub_data: Path, documents: list[RecorderCheckpoint], file_store: Store
) -> None:
    archive_carry.push(hub_data, file_store)
    (hub_data / names(hub_data)[1]).unlink()
    with pytest.raises(OldCopy, match="recorder/checkpoint"):
        archive_carry.push(hub_data, file_store)


def test_a_restored_directory_has_them_byte_by_byte_and_goes_on(
    stopped_hub: Any, hub_data: Path, documents: list[RecorderCheckpoint], file_store: Store,
    tmp_path: Path,
) -> None:  # fmt: skip
    archive_carry.push(hub_data, file_store)
    assert archive_carry.checked(file_store).ok
    assert status(archive_carry.archive_of(file_store)).recorder_checkpoints == 2
    assert archive_carry.push(hub_data, file_store).new_objects == 0
    to = tmp_path / "again" / "data"
    restored = archive_carry.restore(file_store, to, keys=hub_data / "keys")
    assert restored.hub_time == restored.made_at == documents[1].created_at
    assert archive_carry.files(to) == archive_carry.files(hub_data)
    assert archive_carry.audit(to, stopped_hub.toml).ok
    assert (
        make_documents(to, stopped_hub.toml, stopped_hub.writers["record/b"].label)[1]
        == documents[1]
    )


def test_a_fork_leaves_out_what_was_made_after_the_cut(
    stopped_hub: Any, hub_data: Path, documents: list[RecorderCheckpoint], file_store: Store,
    tmp_path: Path,
) -> None:  # fmt: skip
    archive_carry.push(hub_data, file_store)
    first, second = documents
    for at, stored in ((second.created_at, 2), (first.created_at, 1), (first.created_at - 1, 0)):
        to = tmp_path / f"fork-{stored}" / "data"
        archive_carry.restore(file_store, to, keys=hub_data / "keys", at=at)
        assert names(to) == names(hub_data)[:stored]
        assert archive_carry.audit(to, stopped_hub.toml).ok


def test_a_clone_carries_them(
    stopped_hub: Any, hub_data: Path, documents: list[RecorderCheckpoint], file_store: Store,
    tmp_path: Path,
) -> None:  # fmt: skip
    archive_carry.push(hub_data, file_store)
    other = open_store(FileSettings(tmp_path / "other"))
    clone(file_store, other, stopped_hub.hub_id, progress=archive_carry.quiet)
    assert archive_carry.contents(other) == archive_carry.contents(file_store)
    assert archive_carry.checked(other, read_all=True).ok


@pytest.mark.parametrize("damage", ["flipped", "swapped", "missing"])
def test_a_document_that_was_tampered_with_in_the_store_is_found(
    hub_data: Path, documents: list[RecorderCheckpoint], file_store: Store, store_folder: Path,
    tmp_path: Path, damage: str,
) -> None:  # fmt: skip
    archive_carry.push(hub_data, file_store)
    keys = [key_of(file_store, name) for name in names(hub_data)]
    path, other = (path_of(StoreLayout(store_folder).objects, key) for key in keys)
    path.chmod(0o600)
    if damage == "flipped":
        raw = bytearray(path.read_bytes())
        raw[len(raw) // 2] ^= 4
        path.write_bytes(raw)
    elif damage == "swapped":
        path.write_bytes(other.read_bytes())
    else:
        path.unlink()
    assert [flaw.key for flaw in archive_carry.checked(file_store).flaws] == [keys[0]]
    with pytest.raises(VeenError):
        archive_carry.restore(file_store, tmp_path / "to")
    assert not (tmp_path / "to").exists()


def test_the_audit_of_the_archive_says_the_same_as_that_of_the_directory(
    stopped_hub: Any,
    hub_data: Path,
    documents: list[RecorderCheckpoint],
    file_store: Store,
    store_folder: Path,
) -> None:
    settings = load_settings(stopped_hub.toml)
    archive_carry.push(hub_data, file_store)
    terms = AuditTerms(limits=settings.limits, streams=settings.streams)

    def archived() -> Any:
        inventory = in_archive(store_ref(store_folder.as_uri(), {}), stopped_hub.hub_id)
        return audit(inventory, terms, Depth.FULL, here(inventory.files))

    assert archived().to_json() == archive_carry.audit(hub_data, stopped_hub.toml).to_json()
    for name in names(hub_data):
        path = path_of(StoreLayout(store_folder).objects, key_of(file_store, name))
        path.chmod(0o600)
        whole = path.read_bytes()
        changed = whole[:-1] + bytes([whole[-1] ^ 1])
        path.write_bytes(changed)
        (hub_data / name).write_bytes(changed)
    paths = archived()
    assert [fault.code for fault in paths.faults] == ["RECORDER"] * 2
    assert paths.to_json() == archive_carry.audit(hub_data, stopped_hub.toml).to_json()
    for name in names(hub_data):
        path_of(StoreLayout(store_folder).objects, key_of(file_store, name)).unlink()
    assert [fault.code for fault in archived().faults] == ["MISSING"] * 2


@pytest.mark.parametrize("name", ["recorder/../keys/x", "log/lock", "/etc/passwd"])
def test_a_manifest_cannot_name_another_file(name: str) -> None:
    pieces = (ArchivedFile(name=name, size=1, sha256=bytes(32)),)
    with pytest.raises(Malformed):
        RecorderManifest(pieces=pieces).encode()
    assert NO_DOCUMENTS.last_ts == 0


def test_an_archive_without_any_is_as_it_was(
    hub_data: Path, file_store: Store, tmp_path: Path
) -> None:
    shutil.rmtree(hub_data / "recorder")
    archive_carry.push(hub_data, file_store)
    assert archive_carry.archive_of(file_store).latest().recorder is None
    assert archive_carry.checked(file_store).ok
    restored = archive_carry.restore(file_store, tmp_path / "to")
    assert restored.made_at == 0
