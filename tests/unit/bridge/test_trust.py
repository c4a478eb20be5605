"""Whom a zone trusts: trust grows by what goes on from what is pinned, and ends by revocation."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bridge import standalone_verifier as standalone
from bridge.trust import TrustStore, pin_exporter, pin_hub, revoke
from support.bridge import bridge_world
from veen.crypto import SigningKey
from veen.digest import h
from veen.errors import Untrusted
from veen.hub_identity import HubIdentity

SECOND, THIRD = SigningKey(h(b"second")), SigningKey(h(b"third"))


@pytest.fixture
def bags(carrier_factory: Any, grown_world: Any) -> list[Path]:
    paths: list[Path] = carrier_factory.carry(grown_world.bundle(2, 4))
    return paths


@pytest.fixture
def revoking(carrier_factory: Any) -> Callable[[bytes], None]:
    def of(what: bytes) -> None:
        revoke(carrier_factory.trust_dir, what, "stolen, case 12")
        carrier_factory.trust = TrustStore.read(carrier_factory.trust_dir)

    return of


def rotated() -> HubIdentity:
    result: HubIdentity = bridge_world.IDENTITY.rotated(
        bridge_world.HUB, SECOND.public, bridge_world.START + 10**6, 0
    )
    return result


def test_newer_keys_of_a_hub_are_added(carrier_factory: Any, bags: list[Path]) -> None:
    newer = rotated()
    assert pin_hub(carrier_factory.trust_dir, newer, newer.signature_by(SECOND))
    assert not pin_hub(carrier_factory.trust_dir, newer, newer.signature_by(SECOND))
    carrier_factory.trust = TrustStore.read(carrier_factory.trust_dir)
    assert len(carrier_factory.trust.hubs[newer.hub_id].hub_keys) == 2
    assert carrier_factory.both(bags) == "valid"


def test_an_older_identity_of_a_hub_does_not_replace_a_newer_one(carrier_factory: Any) -> None:
    newer, older = rotated(), bridge_world.IDENTITY
    pin_hub(carrier_factory.trust_dir, newer, newer.signature_by(SECOND))
    with pytest.raises(Untrusted, match="it is older, or of another chain"):
        pin_hub(carrier_factory.trust_dir, older, older.signature_by(bridge_world.HUB))
    assert TrustStore.read(carrier_factory.trust_dir).hubs[newer.hub_id] == newer


def test_another_chain_of_keys_does_not_replace_the_one_that_is_pinned(
    carrier_factory: Any,
) -> None:
    newer = rotated()
    pin_hub(carrier_factory.trust_dir, newer, newer.signature_by(SECOND))
    other = bridge_world.IDENTITY.rotated(
        bridge_world.HUB, THIRD.public, bridge_world.START + 10**6, 0
    )
    with pytest.raises(Untrusted, match="it is older, or of another chain"):
        pin_hub(carrier_factory.trust_dir, other, other.signature_by(THIRD))


def test_the_key_behind_the_name_of_an_exporter_never_changes(carrier_factory: Any) -> None:
    assert not pin_exporter(carrier_factory.trust_dir, "z1", bridge_world.EXPORTER.public)
    with pytest.raises(Untrusted, match="pin that under a name of its own"):
        pin_exporter(carrier_factory.trust_dir, "z1", SECOND.public)
    assert pin_exporter(carrier_factory.trust_dir, "z1-2", SECOND.public)
    exporters = TrustStore.read(carrier_factory.trust_dir).exporters
    assert exporters == {bridge_world.EXPORTER.public: "z1", SECOND.public: "z1-2"}


def test_i09_refuses_what_a_revoked_exporter_signed(
    carrier_factory: Any, bags: list[Path], revoking: Callable[[bytes], None]
) -> None:
    revoking(bridge_world.EXPORTER.public)
    assert carrier_factory.both(bags) == "E.AUTH/SIGNER"
    assert "which is revoked: stolen, case 12" in str(carrier_factory.check(bags).refusal)
    with pytest.raises(Untrusted, match="is revoked"):
        pin_exporter(carrier_factory.trust_dir, "z1-3", bridge_world.EXPORTER.public)


def test_i09_refuses_what_comes_from_a_revoked_hub(
    carrier_factory: Any, bags: list[Path], revoking: Callable[[bytes], None]
) -> None:
    revoking(bridge_world.IDENTITY.hub_id)
    assert carrier_factory.both(bags) == "E.AUTH/HUB"
    assert "is revoked: stolen, case 12" in str(carrier_factory.check(bags).refusal)
    with pytest.raises(Untrusted, match="is revoked"):
        pin_hub(
            carrier_factory.trust_dir,
            bridge_world.IDENTITY,
            bridge_world.IDENTITY.signature_by(bridge_world.HUB),
        )


def test_i09_refuses_what_a_revoked_key_of_a_hub_signed_whenever_it_did(
    carrier_factory: Any, bags: list[Path], revoking: Callable[[bytes], None]
) -> None:
    newer = rotated()
    pin_hub(carrier_factory.trust_dir, newer, newer.signature_by(SECOND))
    revoking(bridge_world.HUB.public)
    assert carrier_factory.trust.hubs[newer.hub_id].hub_keys[0].hub_pk == SECOND.public
    assert carrier_factory.both(bags) == "E.AUTH/HUB_KEY"


def test_a_hub_all_of_whose_keys_are_revoked_is_not_trusted(
    carrier_factory: Any, bags: list[Path], revoking: Callable[[bytes], None]
) -> None:
    revoking(bridge_world.HUB.public)
    assert carrier_factory.both(bags) == "E.AUTH/HUB"
    assert standalone.read_trust(carrier_factory.trust_dir)[0] == {}
