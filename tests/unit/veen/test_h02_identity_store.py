"""H02: of each hub the newest identity is remembered, and an older one never replaces it."""

from __future__ import annotations

from pathlib import Path

import pytest

from veen import identity_store
from veen.crypto import SigningKey
from veen.digest import h
from veen.errors import Untrusted, VeenError
from veen.hub_identity import HubIdentity, new_identity, newest_identity
from veen.identity_store import SignedIdentity, read_signed

KEYS = [SigningKey(h(b"hub key %d" % number)) for number in range(4)]


def identity(number: int, branch: int = 0) -> HubIdentity:
    """With so many keys; branches differ in their last one."""
    hub_identity = new_identity(KEYS[0].public, 1_000, "none")
    for at in range(1, number):
        new = KEYS[at + branch if at == number - 1 else at]
        hub_identity = hub_identity.rotated(KEYS[at - 1], new.public, 1_000 + at, 10)
    return hub_identity


def signed(number: int, branch: int = 0) -> SignedIdentity:
    result = identity(number, branch)
    return SignedIdentity(result, result.signature_by(KEYS[number - 1 + branch]))


def test_h02_the_newest_identity_is_remembered_and_none_older(tmp_path: Path) -> None:
    store, hub_id = tmp_path / "known", identity(1).hub_id
    assert identity_store.known(store, hub_id) is None
    assert [identity_store.remember(store, signed(n)) for n in (1, 1, 2, 1, 2)] == [
        True, False, True, False, False
    ]  # fmt: skip
    assert identity_store.known(store, hub_id) == identity(2)


def test_h02_two_chains_of_one_hub_are_refused(tmp_path: Path) -> None:
    identity_store.remember(tmp_path, signed(2))
    with pytest.raises(Untrusted, match="two chains"):
        identity_store.remember(tmp_path, signed(2, branch=1))
    assert identity_store.known(tmp_path, identity(1).hub_id) == identity(2)


def test_h02_an_identity_without_its_signature_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Untrusted):
        identity_store.remember(tmp_path, SignedIdentity(identity(1), bytes(64)))
    identity_store.remember(tmp_path, signed(1))
    (path,) = tmp_path.glob("*.cbor")
    path.with_suffix(".sig").unlink()
    with pytest.raises(VeenError, match=r"\.sig is missing"):
        read_signed(path)


def test_h02_the_newest_of_two_says_when_the_older_key_retired() -> None:
    assert (
        newest_identity(identity(1), identity(3))
        == newest_identity(identity(3), identity(1))
        == identity(3)
    )
    other = new_identity(KEYS[3].public, 1_000, "none")
    for pair in ((identity(1), other), (other, identity(2))):
        with pytest.raises(Untrusted, match="as pinned"):
            newest_identity(*pair)
    with pytest.raises(Untrusted, match="two chains"):
        newest_identity(identity(3), identity(2, branch=1))
