"""H02: a carrier is checked by the newest identity of its hub, also beside the trust directory."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from bridge import standalone_verifier as standalone
from bridge.trust import TrustStore, pin_hub, revoke
from support.bridge.bridge_world import HUB, IDENTITY, START
from support.cli import cli_binary
from veen.crypto import SigningKey
from veen.digest import h
from veen.errors import Untrusted
from veen.hub_identity import HubIdentity

NEW, OTHER = SigningKey(h(b"newer")), SigningKey(h(b"other"))


def rotated(at: int, key: SigningKey = NEW) -> HubIdentity:
    result: HubIdentity = IDENTITY.rotated(HUB, key.public, START + at, 0)
    return result


RETIRED, LATER, FORGED = rotated(-5), rotated(10**6), rotated(10**6, OTHER)


@pytest.fixture
def bags(carrier_factory: Any, grown_world: Any) -> list[Path]:
    paths: list[Path] = carrier_factory.carry(grown_world.bundle(2, 4))
    return paths


def stored(path: Path, identity: HubIdentity, key: SigningKey) -> Path:
    path.write_bytes(identity.encode())
    path.with_suffix(".sig").write_bytes(identity.signature_by(key))
    return path


def judged(carrier_factory: Any, bags: list[Path], file: Path) -> tuple[int, int]:
    """The exit codes of both verifiers, one of which is run as its users run it."""
    words = (
        "bridge",
        "verify",
        *bags,
        "--trust",
        carrier_factory.trust_dir,
        "--hub-identity",
        file,
        "--json",
    )
    done = cli_binary.called(*words, cwd=carrier_factory.root)
    given = ["--hub-identity", str(file), str(carrier_factory.trust_dir), *map(str, bags)]
    try:
        return done.code, standalone.main(given)
    except SystemExit as ended:
        return done.code, int(str(ended.code))


def test_h02_a_retired_hub_key_is_refused_by_a_newer_identity(
    carrier_factory: Any, bags: list[Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert carrier_factory.both(bags) == "valid"
    assert judged(carrier_factory, bags, stored(tmp_path / "retired.cbor", RETIRED, NEW)) == (3, 1)
    assert judged(carrier_factory, bags, stored(tmp_path / "later.cbor", LATER, NEW)) == (0, 0)
    assert "identity of the hub: 2, the newest in TRUST" in capsys.readouterr().out


def test_h02_the_verdict_says_which_identity_was_used(
    carrier_factory: Any, bags: list[Path], tmp_path: Path
) -> None:
    file = stored(tmp_path / "later.cbor", LATER, NEW)
    words = ("bridge", "verify", *bags, "--trust", carrier_factory.trust_dir)
    plain = cli_binary.called(*words, cwd=carrier_factory.root)
    assert "identity     1 of the hub, the newest known here, since 2023-" in plain.out
    newer = cli_binary.called(*words, "--hub-identity", file, "--json", cwd=carrier_factory.root)
    (row,) = json.loads(newer.out)["carriers"]
    assert (row["hub_identity"], row["hub_identity_since"]) == (2, START + 10**6)


@pytest.mark.parametrize("given", [IDENTITY, FORGED], ids=["older", "another chain"])
def test_h02_an_older_or_forged_identity_changes_nothing_for_the_better(
    carrier_factory: Any, bags: list[Path], tmp_path: Path, given: HubIdentity
) -> None:
    pin_hub(carrier_factory.trust_dir, RETIRED, RETIRED.signature_by(NEW))
    file = stored(tmp_path / "given.cbor", given, HUB if given is IDENTITY else OTHER)
    ours, other = judged(carrier_factory, bags, file)
    assert ours == 3
    assert other != 0


def test_h02_an_identity_of_a_hub_that_is_not_trusted_is_refused() -> None:
    with pytest.raises(Untrusted, match="not in the trust store"):
        TrustStore().with_identity(LATER)


def test_h02_what_is_revoked_stays_revoked_in_a_newer_identity(carrier_factory: Any) -> None:
    revoke(carrier_factory.trust_dir, NEW.public, "stolen")
    result = TrustStore.read(carrier_factory.trust_dir).with_identity(LATER).hubs[LATER.hub_id]
    assert [key.hub_pk for key in result.hub_keys] == [HUB.public]
    assert result.hub_keys[0].valid_until == START + 10**6


def test_h02_a_pinned_retirement_is_not_put_off(carrier_factory: Any) -> None:
    pin_hub(carrier_factory.trust_dir, RETIRED, RETIRED.signature_by(NEW))
    longer = IDENTITY.rotated(HUB, NEW.public, START - 5, 10**9)
    with pytest.raises(Untrusted, match="of another chain"):
        pin_hub(carrier_factory.trust_dir, longer, longer.signature_by(NEW))


def test_h02_the_standalone_verifier_without_a_file_says_how_it_is_called(
    carrier_factory: Any,
) -> None:
    with pytest.raises(SystemExit, match="2"):
        standalone.main([str(carrier_factory.trust_dir), "bag", "--hub-identity"])
