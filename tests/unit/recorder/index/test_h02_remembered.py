"""H02: what the recorder remembers of a hub is never replaced by an older identity."""

from __future__ import annotations

from pathlib import Path

import cbor2
import pytest

from recorder.checkpoints.store import HubIdentityFile
from recorder.index.imports import Imports
from veen.crypto import SigningKey
from veen.digest import h
from veen.errors import Malformed, Untrusted, WrongVersion
from veen.hub_identity import HubIdentity, new_identity

OLD, NEW = SigningKey(h(b"old")), SigningKey(h(b"new"))
FIRST = new_identity(OLD.public, 1_000, "none")
SECOND = FIRST.rotated(OLD, NEW.public, 2_000, 10)


def taken(*identities: HubIdentity) -> HubIdentity:
    imports = Imports()
    for identity in identities:
        imports = imports.joined((), {identity.hub_id: identity})
    (result,) = imports.hubs
    return result


def test_h02_an_index_keeps_the_newest_identity_of_an_imported_hub() -> None:
    assert taken(FIRST, SECOND) == taken(SECOND, FIRST) == SECOND


def test_h02_an_index_takes_an_identity_from_which_a_key_was_revoked() -> None:
    """A trust directory leaves a revoked key out; that is no older identity."""
    without = HubIdentity(hub_id=FIRST.hub_id, hub_keys=SECOND.hub_keys[:1], anchoring="none")
    assert taken(SECOND, without) == without


def test_h02_the_query_service_keeps_the_newest_identity(tmp_path: Path) -> None:
    HubIdentityFile(tmp_path / "hub").store(SECOND, SECOND.signature_by(NEW))
    with pytest.raises(Untrusted, match="fewer keys"):
        HubIdentityFile(tmp_path / "hub").store(FIRST, FIRST.signature_by(OLD))
    assert HubIdentityFile(tmp_path / "hub").read()[0] == SECOND


def test_an_identity_file_of_version_0_is_read_and_replaced(tmp_path: Path) -> None:
    version_0 = tmp_path / "hub-papers.cbor"
    version_0.write_bytes(cbor2.dumps([FIRST.encode(), FIRST.signature_by(OLD)]))
    file = HubIdentityFile(tmp_path / "signed-hub-identity.cbor")
    assert file.read() == (FIRST, FIRST.signature_by(OLD))
    file.store(SECOND, SECOND.signature_by(NEW))
    assert not version_0.exists()
    assert HubIdentityFile(tmp_path / "signed-hub-identity.cbor").read()[0] == SECOND


def test_a_damaged_identity_file_of_version_0_is_named(tmp_path: Path) -> None:
    (tmp_path / "hub-papers.cbor").write_bytes(b"")
    with pytest.raises(Malformed, match=r"hub-papers\.cbor: truncated"):
        HubIdentityFile(tmp_path / "signed-hub-identity.cbor").read()


def test_an_identity_file_of_a_newer_version_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "signed-hub-identity.cbor"
    HubIdentityFile(path).store(FIRST, FIRST.signature_by(OLD))
    stored = cbor2.loads(path.read_bytes())
    path.write_bytes(cbor2.dumps({**stored, min(stored): 2}, canonical=True))
    with pytest.raises(WrongVersion, match=r"signed-hub-identity\.cbor: expected version 1, got 2"):
        HubIdentityFile(path).read()
