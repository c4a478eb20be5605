"""A client directory is its owner's alone, whatever the umask and whatever was there before."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from veen.errors import VeenError
from veen.keystore.directory import ClientDir, ClientDirLock
from veen.keystore.sealed import NotPrivate

NOW = 1_700_000_000
PASSPHRASE = b"correct horse battery staple"
Create = Callable[..., ClientDir]


def modes(root: Path) -> dict[str, int]:
    return {
        path.name: stat.S_IMODE(path.lstat().st_mode) for path in sorted([root, *root.rglob("*")])
    }


EXPECTED = {
    "client": 0o700,
    "attachments": 0o700,
    "evidence": 0o700,
    "identity_card.pub": 0o600,
    "keystore.enc": 0o600,
    "lock": 0o600,
}


@pytest.mark.usefixtures("permissive_umask")
def test_a_permissive_umask_opens_nothing(
    create_client_dir: Create, seeded_random: Callable[[int], bytes], tmp_path: Path
) -> None:
    client = create_client_dir()
    assert modes(tmp_path / "client") == EXPECTED
    client.rotate(NOW, seeded_random, PASSPHRASE)
    assert modes(tmp_path / "client") == EXPECTED


@pytest.mark.usefixtures("permissive_umask")
def test_an_empty_directory_is_closed_to_others(create_client_dir: Create, tmp_path: Path) -> None:
    (tmp_path / "client").mkdir(mode=0o777)
    create_client_dir()
    assert modes(tmp_path / "client") == EXPECTED


def test_a_shared_directory_with_files_is_left_alone(
    create_client_dir: Create, tmp_path: Path
) -> None:
    root = tmp_path / "client"
    root.mkdir()
    root.chmod(0o1777)
    (root / ".keystore.enc.new").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(NotPrivate, match="not empty"):
        create_client_dir()
    assert modes(root) == {"client": 0o1777, ".keystore.enc.new": 0o777}
    assert not (tmp_path / "elsewhere").exists()


@pytest.mark.parametrize("bit", [0o040, 0o020, 0o010, 0o004, 0o002, 0o001])
def test_a_directory_that_others_may_enter_is_refused(bit: int, create_client_dir: Create) -> None:
    client = create_client_dir()
    client.root.chmod(0o700 | bit)
    with pytest.raises(NotPrivate, match=f"run chmod 700 {client.root}"):
        client.open(PASSPHRASE)
    client.root.chmod(0o700)
    client.open(PASSPHRASE)


@pytest.mark.parametrize("bit", [0o040, 0o020, 0o004, 0o002])
@pytest.mark.parametrize(
    "name", ["keystore.enc", "state.json", "outbox.sqlite", "receipts.cborseq"]
)
def test_a_file_that_others_may_use_is_refused(
    name: str, bit: int, create_client_dir: Create
) -> None:
    client = create_client_dir()
    path = client.root / name
    path.touch(mode=0o600)
    path.chmod(0o600 | bit)
    with pytest.raises(NotPrivate, match=f"run chmod 600 {path}"):
        client.open(PASSPHRASE)
    path.chmod(0o600)
    client.open(PASSPHRASE)


def test_others_may_read_the_card_but_not_write_it(create_client_dir: Create) -> None:
    client = create_client_dir()
    client.card.chmod(0o644)
    client.open(PASSPHRASE)
    for mode in (0o620, 0o602):
        client.card.chmod(mode)
        with pytest.raises(NotPrivate, match=f"run chmod 600 {client.card}"):
            client.open(PASSPHRASE)


@pytest.mark.parametrize("name", ["keystore.enc", "identity_card.pub", "state.json"])
def test_a_symbolic_link_is_refused(name: str, create_client_dir: Create, tmp_path: Path) -> None:
    client = create_client_dir()
    path = client.root / name
    path.touch()
    path.rename(tmp_path / "moved")
    path.symlink_to(tmp_path / "moved")
    with pytest.raises(NotPrivate, match="symbolic link"):
        client.open(PASSPHRASE)


def test_a_linked_or_dangling_keystore_is_not_replaced(
    create_client_dir: Create, tmp_path: Path
) -> None:
    root = tmp_path / "client"
    root.mkdir(mode=0o700)
    (root / "keystore.enc").symlink_to(tmp_path / "nowhere")
    with pytest.raises(VeenError, match="exists"):
        create_client_dir()
    assert not (tmp_path / "nowhere").exists()


def test_a_linked_lock_is_refused(create_client_dir: Create, tmp_path: Path) -> None:
    client = create_client_dir()
    client.lock.unlink()
    client.lock.symlink_to(tmp_path / "target")
    with pytest.raises(VeenError, match="symbolic link"):
        ClientDirLock(client)
    assert not (tmp_path / "target").exists()


def test_a_pipe_in_place_of_the_keystore_does_not_hang(create_client_dir: Create) -> None:
    client = create_client_dir()
    client.keystore.unlink()
    os.mkfifo(client.keystore, mode=0o600)
    with pytest.raises(NotPrivate, match="not a regular file"):
        client.open(PASSPHRASE)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_a_keystore_of_another_user_is_refused(create_client_dir: Create) -> None:
    client = create_client_dir()
    os.chown(client.keystore, 12345, -1)
    with pytest.raises(NotPrivate, match="belongs to user 12345"):
        client.open(PASSPHRASE)


def test_a_path_with_spaces_is_quoted_in_the_advice(create_client_dir: Create) -> None:
    client = create_client_dir("my client")
    client.keystore.chmod(0o644)
    with pytest.raises(NotPrivate, match=f"chmod 600 '{client.keystore}'"):
        client.open(PASSPHRASE)
