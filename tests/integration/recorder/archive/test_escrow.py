"""The private keys of a hub in its archive: for one identity, and for nobody else."""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path

import pytest

from hub.storage import identity
from hub.storage.datadir import DataDir
from recorder.archive.escrow import Escrow, EscrowSealer, NoKeys, read_seeds
from support.recorder import archive_carry
from veen.errors import Undecryptable, Untrusted
from veen.keystore.directory import ClientDir
from veen.objects.port import Store
from veen.wire import cbor


def rotate(data: Path) -> None:
    identity.rotate(DataDir(data), os.urandom, int(time.time()), 0)


def test_the_escrow_opens_for_its_identity_even_after_that_rotated(
    hub_data: Path, file_store: Store, tmp_path: Path
) -> None:
    me = archive_carry.keygen(tmp_path / "me")
    assert archive_carry.push(
        hub_data, file_store, archive_carry.sealer(tmp_path / "me")
    ).is_escrowed
    archive = archive_carry.archive_of(file_store)
    sha256 = archive.latest().escrow
    assert sha256 is not None
    escrow = archive.document(sha256, Escrow)
    due = {path.read_bytes() for path in (hub_data / "keys").iterdir()}
    assert set(escrow.open(me.readers()).values()) == due
    later = ClientDir(tmp_path / "me").rotate(int(time.time()), os.urandom, None)
    assert set(escrow.open(later.readers()).values()) == due


def test_no_key_lies_open_in_the_store(hub_data: Path, file_store: Store, tmp_path: Path) -> None:
    archive_carry.keygen(tmp_path / "me")
    archive_carry.push(hub_data, file_store, archive_carry.sealer(tmp_path / "me"))
    seeds = [path.read_bytes() for path in (hub_data / "keys").iterdir()]
    everything = b"".join(archive_carry.contents(file_store).values())
    assert seeds
    assert not any(seed in everything for seed in seeds)


def test_another_identity_is_refused_and_nothing_is_built(
    hub_data: Path, store_folder: Path, file_store: Store, tmp_path: Path
) -> None:
    archive_carry.keygen(tmp_path / "me")
    archive_carry.keygen(tmp_path / "other")
    archive_carry.push(hub_data, file_store, archive_carry.sealer(tmp_path / "me"))
    arguments = (
        "--store",
        store_folder.as_uri(),
        "--to",
        tmp_path / "to",
        "--client",
        tmp_path / "other",
    )
    done = archive_carry.veen("archive", "restore", *arguments)
    assert done.returncode == 3
    assert "sealed to another identity" in done.stderr
    assert not (tmp_path / "to").exists()


def test_an_escrow_is_bound_to_its_hub_and_to_the_keys_it_names(
    hub_data: Path, file_store: Store, tmp_path: Path
) -> None:
    me = archive_carry.keygen(tmp_path / "me")
    archive_carry.push(hub_data, file_store)
    archive = archive_carry.archive_of(file_store)
    hub = archive.identity(archive.latest())
    seeds = read_seeds(hub_data / "keys", hub)
    sealed = EscrowSealer(me.card.prekeys[0].prekey, os.urandom(32)).seal(hub.hub_id, seeds)
    assert sealed.open(me.readers()) == seeds
    for key, other in ((2, bytes(32)), (4, [bytes(32)])):
        moved = Escrow.decode(cbor.dump({**sealed.plain(), key: other}))
        with pytest.raises(Undecryptable):
            moved.open(me.readers())


def test_the_same_card_again_changes_nothing_and_a_new_key_is_sealed_anew(
    hub_data: Path, file_store: Store, tmp_path: Path
) -> None:
    archive_carry.keygen(tmp_path / "me")
    first = archive_carry.push(hub_data, file_store, archive_carry.sealer(tmp_path / "me"))
    assert (
        archive_carry.push(hub_data, file_store, archive_carry.sealer(tmp_path / "me")).manifest
        == first.manifest
    )
    rotate(hub_data)
    assert not archive_carry.push(hub_data, file_store).is_escrowed
    archive = archive_carry.archive_of(file_store)
    assert archive.latest().escrow is not None
    assert archive_carry.push(
        hub_data, file_store, archive_carry.sealer(tmp_path / "me")
    ).is_escrowed
    sha256 = archive.latest().escrow
    assert sha256 is not None
    escrow = archive.document(sha256, Escrow)
    assert len(escrow.key_ids) == 2


def test_an_escrow_without_the_current_key_does_not_make_a_hub(
    hub_data: Path, store_folder: Path, file_store: Store, tmp_path: Path
) -> None:
    archive_carry.keygen(tmp_path / "me")
    archive_carry.push(hub_data, file_store, archive_carry.sealer(tmp_path / "me"))
    rotate(hub_data)
    archive_carry.push(hub_data, file_store)
    arguments = (
        "--store",
        store_folder.as_uri(),
        "--to",
        tmp_path / "to",
        "--client",
        tmp_path / "me",
    )
    done = archive_carry.veen("archive", "restore", *arguments)
    assert done.returncode == 4
    assert "does not hold the current hub key" in done.stderr


def test_keys_of_a_directory_are_checked_against_the_identity(
    hub_data: Path, file_store: Store, tmp_path: Path
) -> None:
    archive_carry.push(hub_data, file_store)
    keys = Path(shutil.copytree(hub_data / "keys", tmp_path / "keys"))
    (only,) = keys.iterdir()
    only.write_bytes(bytes(32))
    with pytest.raises(Untrusted, match="expected the private key with the key_id of its name"):
        archive_carry.restore(file_store, tmp_path / "to", keys=keys)
    only.unlink()
    with pytest.raises(NoKeys):
        archive_carry.restore(file_store, tmp_path / "to", keys=keys)
    assert not (tmp_path / "to").exists()
