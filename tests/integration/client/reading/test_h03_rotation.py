"""H03: a client binds a checkpoint to the time of its last entry, and asks for both witnesses."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from support.cli import cli_binary
from support.client import reading_support
from veen.client import portable
from veen.client.resync import resync
from veen.crypto import SigningKey
from veen.digest import h
from veen.errors import Untrusted
from veen.mmr import EMPTY

NAME = "record/a"
OLD = SigningKey(h(b"hub"))
OVERLAP = 100


@pytest.fixture
def rotated(dishonest_hub: Any) -> Any:
    """Four entries, a rotation, four more in the overlap; no checkpoint yet."""
    writer = reading_support.Writer(b"w")
    reading_support.fill(dishonest_hub, dishonest_hub.log(NAME), 4, writer, every=99)
    dishonest_hub.rotate(b"second", dishonest_hub.hub_ts + 10, OVERLAP)
    dishonest_hub.hub_ts += 20
    dishonest_hub.log(NAME).hub_ts = dishonest_hub.hub_ts
    reading_support.fill(dishonest_hub, dishonest_hub.log(NAME), 4, writer, every=99)
    return dishonest_hub


def synced(hub: Any, session: Any) -> int:
    return int(resync(session, hub.labels(NAME), NAME).checkpoints_checked)


def test_h03_a_retired_key_signs_no_checkpoint_of_later_entries(
    rotated: Any, make_session: Callable[..., Any]
) -> None:
    rotated.rotate(b"third", rotated.hub_ts + 1, 0)
    rotated.hub_ts += OVERLAP + 100
    log = rotated.log(NAME)
    log.hub_ts = rotated.hub_ts
    reading_support.fill(rotated, log, 1, reading_support.Writer(b"v"), every=99)
    log.checkpoint(OLD)
    with pytest.raises(Untrusted, match="checkpoint 9 is not signed"):
        synced(rotated, make_session(rotated.url))


@pytest.mark.parametrize("witnesses", [(), ("old",), ("new",)])
@pytest.mark.parametrize("signer", ["old", "new"])
def test_h03_a_checkpoint_of_the_overlap_without_both_witnesses_is_refused(
    rotated: Any, make_session: Callable[..., Any], signer: str, witnesses: tuple[str, ...]
) -> None:
    keys = {"old": OLD, "new": rotated.key}
    log = rotated.log(NAME)
    checkpoint = log.checkpoint(keys[signer])
    for witness in witnesses:
        checkpoint = checkpoint.witnessed(keys[witness])
    log.checkpoints = [checkpoint]
    with pytest.raises(Untrusted, match="expected witness_sigs of both"):
        synced(rotated, make_session(rotated.url))


def test_h03_both_witnesses_are_enough_and_after_the_overlap_none_is_asked_for(
    rotated: Any, make_session: Callable[..., Any]
) -> None:
    log = rotated.log(NAME)
    bare = log.checkpoint(rotated.key)
    log.checkpoints = [bare.witnessed(OLD).witnessed(rotated.key)]
    assert synced(rotated, make_session(rotated.url, "in the overlap")) == 1
    log.checkpoints = [bare]
    rotated.hub_ts += OVERLAP
    assert synced(rotated, make_session(rotated.url, "after it")) == 1


def test_h03_a_rotation_seen_while_checking_a_checkpoint_is_remembered(
    dishonest_hub: Any, make_session: Callable[..., Any]
) -> None:
    log, writer = dishonest_hub.log(NAME), reading_support.Writer(b"w")
    reading_support.fill(dishonest_hub, log, 4, writer, every=99)
    session = make_session(dishonest_hub.url)
    dishonest_hub.rotate(b"second", dishonest_hub.hub_ts, 0)
    dishonest_hub.hub_ts += 1
    log.checkpoint(dishonest_hub.key)
    assert synced(dishonest_hub, session) == 1
    assert len(session.hub.hub_keys) == 2


def test_h03_an_exported_set_refuses_a_retired_keys_checkpoint(
    rotated: Any, portable_home: Any, make_session: Callable[..., Any], tmp_path: Path
) -> None:
    rotated.log(NAME).checkpoint(OLD)
    session = make_session(rotated.url, "home", identity=portable_home.open(None))
    with pytest.raises(Untrusted, match="expected witness_sigs of both"):
        portable.export(session, (NAME,), tmp_path / "set")


def asked(hub: Any, folder: Path, *pin: object, upto: int = 8) -> Any:
    words = ("hub", "checkpoint", "--hub", hub.url, "--stream", NAME, "--upto", upto, "--json")
    return cli_binary.called(*words, *pin, cwd=folder)


def test_h03_hub_checkpoint_wants_a_pin(dishonest_hub: Any, tmp_path: Path) -> None:
    reading_support.fill(
        dishonest_hub, dishonest_hub.log(NAME), 8, reading_support.Writer(b"w"), every=99
    )
    done = asked(dishonest_hub, tmp_path)
    assert done.code == 4
    assert "nothing pins the hub" in json.loads(done.err or done.out)["detail"]


def test_h03_hub_checkpoint_pins_by_name_file_or_client(
    dishonest_hub: Any, tmp_path: Path, make_session: Callable[..., Any]
) -> None:
    reading_support.fill(
        dishonest_hub, dishonest_hub.log(NAME), 8, reading_support.Writer(b"w"), every=99
    )
    (tmp_path / "hub-identity.cbor").write_bytes(dishonest_hub.identity.encode())
    (tmp_path / "hub-identity.sig").write_bytes(
        dishonest_hub.identity.signature_by(dishonest_hub.key)
    )
    session = make_session(dishonest_hub.url, "met")
    for pin in (
        ("--hub-id", dishonest_hub.identity.hub_id.hex()),
        ("--hub-identity", "hub-identity.cbor"),
        ("--client", session.root),
    ):
        done = asked(dishonest_hub, tmp_path, *pin)
        assert done.code == 0, done.err
        document = json.loads(done.out)
        root = dishonest_hub.log(NAME).peaks.root().hex()
        assert (document["mmr_root"], document["recomputed_from"]) == (root, 8)


def test_h03_hub_checkpoint_refuses_another_hub_and_an_identity_put_back(
    rotated: Any, tmp_path: Path, make_lying_hub: Callable[..., Any]
) -> None:
    (tmp_path / "new.cbor").write_bytes(rotated.identity.encode())
    (tmp_path / "new.sig").write_bytes(rotated.identity.signature_by(rotated.key))
    other = make_lying_hub(b"another")
    reading_support.fill(other, other.log(NAME), 8, reading_support.Writer(b"w"), every=99)
    done = asked(other, tmp_path, "--hub-id", rotated.identity.hub_id.hex())
    assert (done.code, "as pinned" in done.out + done.err) == (3, True)
    old = make_lying_hub(b"hub")
    reading_support.fill(old, old.log(NAME), 8, reading_support.Writer(b"w"), every=99)
    done = asked(old, tmp_path, "--hub-identity", "new.cbor")
    assert (done.code, "fewer keys" in done.out + done.err) == (3, True)


def test_h03_hub_checkpoint_recomputes_the_root(dishonest_hub: Any, tmp_path: Path) -> None:
    """The hub signs one root in receipt and checkpoint, and serves other messages."""
    log = dishonest_hub.log(NAME)
    reading_support.fill(dishonest_hub, log, 8, reading_support.Writer(b"w"), every=99)
    other = EMPTY
    writer = reading_support.Writer(b"other")
    for seq in range(8):
        msg = writer.msg(log.label, seq)
        other = other.append(msg.leaf_hash())
    wrong = replace(log.receipt(8), mmr_root=other.root()).signed(dishonest_hub.key)
    log.pairs[7] = (log.pairs[7][0], wrong.encode())
    checkpoint = log.checkpoint(dishonest_hub.key)
    log.checkpoints = [replace(checkpoint, mmr_root=other.root()).signed(dishonest_hub.key)]
    done = asked(dishonest_hub, tmp_path, "--hub-id", dishonest_hub.identity.hub_id.hex())
    assert (done.code, "the messages have root" in done.out + done.err) == (3, True)


def test_h03_hub_checkpoint_refuses_a_retired_key_and_missing_witnesses(
    rotated: Any, tmp_path: Path
) -> None:
    pin = ("--hub-id", rotated.identity.hub_id.hex())
    done = asked(rotated, tmp_path, *pin)
    assert (done.code, "witness_sigs" in done.out + done.err) == (3, True)
    log = rotated.log(NAME)
    log.checkpoints = [log.checkpoint(OLD)]
    rotated.hub_ts += OVERLAP
    done = asked(rotated, tmp_path, *pin)
    assert (done.code, "witness_sigs" in done.out + done.err) == (3, True)


def test_h03_hub_checkpoint_starts_where_retention_left_off(
    dishonest_hub: Any, tmp_path: Path
) -> None:
    log = dishonest_hub.log(NAME)
    reading_support.fill(dishonest_hub, log, 8, reading_support.Writer(b"w"), every=99)
    log.pruned = 5
    done = asked(dishonest_hub, tmp_path, "--hub-id", dishonest_hub.identity.hub_id.hex())
    assert done.code == 0, done.err
    assert json.loads(done.out)["recomputed_from"] == 3
