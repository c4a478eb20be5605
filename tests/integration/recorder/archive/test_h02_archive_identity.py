"""H02: an archive is judged by the newest identity of its hub that is known, not by its own."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from hub.storage import identity as hub_identity
from hub.storage.datadir import DataDir
from support.recorder import archive_carry
from veen import identity_store
from veen.audit.report import SignedAuditReport
from veen.crypto import SigningKey
from veen.digest import h
from veen.hub_identity import new_identity
from veen.identity_store import SignedIdentity, read_signed
from veen.objects.port import Store

OK, INTEGRITY, UNPROVEN = 0, 3, 6
NEXT = SigningKey(h(b"the key after"))
ARCHIVE, AUDIT = ("archive", "verify"), ("audit", "log")


def rotated(data: Path, at: int | None = None) -> SignedIdentity:
    """The identity after a rotation, by default before anything was logged."""
    before = read_signed(data).identity
    (seed,) = (data / "keys").glob("*.key")
    when = before.current.valid_from if at is None else at
    result = before.rotated(SigningKey(seed.read_bytes()), NEXT.public, when, 0)
    return SignedIdentity(result, result.signature_by(NEXT))


def written(folder: Path, signed: SignedIdentity) -> Path:
    folder.mkdir()
    path = folder / "hub-identity.cbor"
    path.write_bytes(signed.identity.encode())
    path.with_suffix(".sig").write_bytes(signed.signature)
    return path


@pytest.fixture
def pushed(hub_data: Path, file_store: Store) -> Path:
    archive_carry.push(hub_data, file_store)
    return hub_data


@pytest.fixture(params=[ARCHIVE, AUDIT], ids=" ".join)
def command(
    request: pytest.FixtureRequest, store_folder: Path, stopped_hub: Any
) -> tuple[object, ...]:
    config = ("--config", stopped_hub.toml) if request.param == AUDIT else ()
    return (*request.param, "--store", store_folder.as_uri(), *config)


def detail(code: int, *words: object) -> Any:
    done = archive_carry.veen(*words, "--json")
    assert done.returncode == code, done.stdout + done.stderr
    return json.loads(done.stdout)


def test_h02_by_its_own_identity_alone_it_is_unproven(
    command: tuple[object, ...], pushed: Path
) -> None:
    result = detail(UNPROVEN, *command)
    assert (result["ok"], result["hub_identity_known"]) == (False, False)
    done = archive_carry.veen(*command)
    assert done.returncode == UNPROVEN
    assert "unproven: identity 1 of hub" in done.stderr
    assert "'s own: a newer one, in which that key has retired, may exist" in done.stderr


def test_h02_by_an_identity_from_elsewhere_it_holds(
    command: tuple[object, ...], pushed: Path
) -> None:
    result = detail(OK, *command, "--hub-identity", pushed)
    assert (result["ok"], result["hub_identity_known"]) == (True, True)
    done = archive_carry.veen(*command, "--hub-identity", pushed)
    assert "judged by identity 1 of hub" in done.stdout


def test_h02_a_history_of_a_retired_key_is_refused(
    command: tuple[object, ...], pushed: Path, tmp_path: Path
) -> None:
    newer = written(tmp_path / "newer", rotated(pushed))
    result = detail(INTEGRITY, *command, "--hub-identity", newer)
    assert result["ok"] is False
    assert "signed by a key" in json.dumps(result)


def test_h02_a_remembered_identity_refuses_it_without_being_named(
    command: tuple[object, ...], pushed: Path, tmp_path: Path
) -> None:
    known = tmp_path / "known"
    identity_store.remember(known, rotated(pushed))
    assert detail(INTEGRITY, *command, "--known-hubs", known)["ok"] is False


def test_h02_an_older_file_does_not_hide_a_remembered_identity(
    command: tuple[object, ...], pushed: Path, tmp_path: Path
) -> None:
    known = tmp_path / "known"
    identity_store.remember(known, rotated(pushed))
    words = ("--known-hubs", known, "--hub-identity", pushed)
    assert detail(INTEGRITY, *command, *words)["ok"] is False


def test_h02_a_key_that_retired_later_still_verifies(
    command: tuple[object, ...], pushed: Path, tmp_path: Path
) -> None:
    later = written(tmp_path / "later", rotated(pushed, int(time.time()) + 10))
    result = detail(OK, *command, "--hub-identity", later)
    assert (result["ok"], result["hub_identity_known"]) == (True, True)


def test_h02_a_chain_of_keys_that_contradicts_the_known_one_is_refused(
    command: tuple[object, ...], hub_data: Path, file_store: Store, tmp_path: Path
) -> None:
    """Whoever stole the first key endorses a key of their own, and archives the result."""
    genuine = written(tmp_path / "genuine", rotated(hub_data, int(time.time())))
    hub_identity.rotate(
        DataDir(hub_data), lambda size: h(b"a thief's key")[:size], int(time.time()), 0
    )
    archive_carry.push(hub_data, file_store)
    result = detail(INTEGRITY, *command, "--hub-identity", genuine)
    assert "two chains of keys" in json.dumps(result)


def test_h02_an_identity_of_another_hub_is_refused(
    command: tuple[object, ...], pushed: Path, tmp_path: Path
) -> None:
    first = SigningKey(h(b"another hub"))
    identity = new_identity(first.public, 1, "")
    other = written(tmp_path / "other", SignedIdentity(identity, identity.signature_by(first)))
    assert "is of hub" in detail(INTEGRITY, *command, "--hub-identity", other)["detail"]


def test_h02_a_verified_archive_teaches_a_newer_identity(
    pushed: Path, store_folder: Path, file_store: Store, tmp_path: Path
) -> None:
    """Only where an earlier one of this hub is remembered; a first one is never believed."""
    known, words = tmp_path / "known", (*ARCHIVE, "--store", store_folder.as_uri())
    detail(UNPROVEN, *words, "--known-hubs", known)
    assert not known.exists()
    identity_store.remember(known, read_signed(pushed))
    hub_identity.rotate(DataDir(pushed), lambda size: h(b"x")[:size], int(time.time()), 0)
    archive_carry.push(pushed, file_store)
    detail(OK, *words, "--known-hubs", known)
    after = read_signed(pushed).identity
    assert identity_store.known(known, after.hub_id) == after


def test_h02_the_signed_report_says_by_which_identity_it_was_judged(
    pushed: Path, store_folder: Path, stopped_hub: Any, tmp_path: Path
) -> None:
    words = (*AUDIT, "--store", store_folder.as_uri(), "--config", stopped_hub.toml)
    report = tmp_path / "report.json"
    detail(UNPROVEN, *words, "--report", report)
    (note,) = SignedAuditReport.from_json(report.read_bytes()).report.notes
    assert note.startswith("unproven identity: identity 1 of hub")
    detail(OK, *words, "--report", report, "--hub-identity", pushed)
    (note,) = SignedAuditReport.from_json(report.read_bytes()).report.notes
    assert note.startswith("judged by identity 1 of hub")


def test_h02_a_directory_is_audited_alike(pushed: Path, stopped_hub: Any, tmp_path: Path) -> None:
    words = (*AUDIT, "--data-dir", pushed, "--config", stopped_hub.toml)
    assert detail(UNPROVEN, *words)["hub_identity_known"] is False
    newer = written(tmp_path / "newer", rotated(pushed))
    assert detail(INTEGRITY, *words, "--hub-identity", newer)["faults"]
