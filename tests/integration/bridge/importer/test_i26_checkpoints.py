"""Two checkpoints of one hub that cannot both be true, whatever streams they are about (I26)."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from bridge.carrier.format import CarrierLedger
from bridge.importer.checkpoints import contradiction
from bridge.importer.ledger import SourceStream
from bridge.importer.rebuild import rebuild_ledger
from bridge.importer.run import ImportRequest
from bridge.importer.status import import_status
from bridge.importer.unfreeze import unfreeze
from bridge.trust import revoke
from support.bridge.bridge_world import HUB, IDENTITY, START, World, parts
from veen.crypto import SigningKey
from veen.digest import h
from veen.recorder_checkpoint import RecorderCheckpoint, log_root

BESIDE = "export/z1/beside"
"""A stream of the same hub of which nothing is ever carried."""
FORK = "E.SEQ/FORK"


def beside(size: int, body_bytes: int = 9) -> World:
    world = World(stream=BESIDE, body_bytes=body_bytes)
    return world.grow(size)


def merged(mine: RecorderCheckpoint, other: RecorderCheckpoint, at: int) -> RecorderCheckpoint:
    """One checkpoint over the streams of both."""
    rows = sorted(
        [*zip(mine.ends, mine.names, strict=True), *zip(other.ends, other.names, strict=True)],
        key=lambda row: row[0].stream_id,
    )
    known = {
        checkpoint.mmr_root: checkpoint for checkpoint in (*mine.checkpoints, *other.checkpoints)
    }
    ends = tuple(end for end, _ in rows)
    return replace(
        mine,
        created_at=at,
        ends=ends,
        names=tuple(name for _, name in rows),
        log_root=log_root(ends),
        checkpoints=tuple(known[end.mmr_root] for end in ends if end.last_seq),
    ).signed(HUB)


@dataclass
class TwoStreams(World):
    """The stream of a zone, and one beside it in the same checkpoints."""

    second: World | None = None
    at: int | None = None

    def checkpoint(self, size: int | None = None) -> RecorderCheckpoint:
        mine = super().checkpoint(size)
        if self.second is None or not self.second.events:
            return mine
        at = mine.created_at if self.at is None else self.at
        return merged(mine, self.second.checkpoint(), at)


@pytest.fixture
def two_histories(import_zone: Any) -> Any:
    import_zone.world = TwoStreams(stream=import_zone.world.stream)
    return import_zone


def bring(zone: Any, first: int, last: int, second: World, at: int | None = None) -> Any:
    """Carry events with a checkpoint that tells this of the stream beside."""
    zone.world.second, zone.world.at = second, None if at is None else START + at
    outcome, *_ = zone.run(_alone(zone, zone.bundle(first, last))).outcomes
    return outcome


def _alone(zone: Any, raw: bytes) -> Path:
    ledger = CarrierLedger(bridge_id=h(raw)).with_bundle(parts(raw)[0])
    result: Path = zone.carry(raw, ledger=ledger)
    return result


def beat(zone: Any, checkpoint: RecorderCheckpoint) -> Any:
    ledger = CarrierLedger(bridge_id=h(checkpoint.encode())).with_heartbeat(checkpoint)
    (outcome,) = zone.run(zone.carry(checkpoint.encode(), ledger=ledger)).outcomes
    return outcome


@pytest.mark.parametrize(
    ("size", "body_bytes"), [(5, 17), (4, 9), (0, 9)], ids=["another root", "shorter", "gone"]
)
def test_i26_a_stream_that_is_not_imported_gives_a_hub_away(
    two_histories: Any, size: int, body_bytes: int
) -> None:
    held, other = beside(5), beside(size, body_bytes)
    assert bring(two_histories, 1, 3, held).state.value == "imported"
    outcome = bring(two_histories, 4, 6, other)
    assert (outcome.state.value, outcome.code) == ("quarantined", FORK)
    equivocation, refused = two_histories.audits()[-2:]
    assert (equivocation.KIND, refused.KIND) == ("equivocation", "import.quarantined")
    assert (equivocation.stream, equivocation.seq, equivocation.of) == (BESIDE, 5, "checkpoints")
    assert (refused.code, refused.bundle_id) == (FORK, outcome.bundle_id)
    _verify_evidence(two_histories, equivocation)
    two_histories.check([1, 2, 3])


def _verify_evidence(zone: Any, equivocation: Any) -> None:
    """From the file beside the bundle alone: both are signed, and no log has both."""
    reason = zone.reason()
    held, other = (
        RecorderCheckpoint.decode(bytes.fromhex(reason[item]["checkpoint"]))
        for item in ("held", "other")
    )
    for item in (held, other):
        item.verify(IDENTITY)
    assert (equivocation.held, equivocation.other) == (held.checkpoint_id, other.checkpoint_id)
    assert contradiction(held, other) is not None
    assert BESIDE in reason["contradiction"]


def test_i26_what_continues_goes_in_whenever_it_comes(two_histories: Any) -> None:
    """Carriers come in any order; an earlier checkpoint may well say less."""
    assert bring(two_histories, 1, 2, beside(3)).state.value == "imported"
    assert bring(two_histories, 5, 6, beside(9)).state.value == "waiting"
    assert bring(two_histories, 3, 4, beside(5)).state.value == "imported"
    two_histories.check(list(range(1, 7)))


def test_i26_an_earlier_checkpoint_that_says_more_is_a_contradiction_too(
    two_histories: Any,
) -> None:
    assert bring(two_histories, 1, 4, beside(3), at=20).state.value == "imported"
    assert bring(two_histories, 5, 6, beside(7), at=10).code == FORK
    two_histories.check([1, 2, 3, 4])


def test_i26_two_checkpoints_of_one_second_may_come_in_both_orders(two_histories: Any) -> None:
    assert bring(two_histories, 1, 2, beside(7), at=9).state.value == "imported"
    assert bring(two_histories, 3, 4, beside(7), at=9).state.value == "imported"
    mine = two_histories.world.checkpoint(3)
    assert beat(two_histories, mine).state.value == "heartbeat"
    assert bring(two_histories, 5, 6, beside(6), at=9).code == FORK


def test_i26_a_heartbeat_that_contradicts_is_kept_apart_and_reported_once(
    two_histories: Any,
) -> None:
    assert bring(two_histories, 1, 3, beside(5)).state.value == "imported"
    two_histories.world.second = beside(5, 17)
    lie = two_histories.world.checkpoint(3)
    outcome = beat(two_histories, replace(lie, created_at=lie.created_at + 1).signed(HUB))
    assert (outcome.state.value, outcome.code) == ("quarantined", FORK)
    (equivocation,) = (audit for audit in two_histories.audits() if audit.KIND == "equivocation")
    assert equivocation.bundle_id is None
    two_histories.check([1, 2, 3])
    assert [audit.KIND for audit in two_histories.audits()].count("equivocation") == 1


def test_i26_a_heartbeat_binds_events_that_come_later(two_histories: Any) -> None:
    """A hub that lost its end, and went on otherwise: nothing of it was imported yet."""
    assert two_histories.states(two_histories.medium(1, 2)) == ["imported"]
    two_histories.bundle(1, 5)
    assert beat(two_histories, two_histories.world.checkpoint(5)).state.value == "heartbeat"
    lost = World(stream=two_histories.world.stream).grow(3)
    lost.body_bytes = 17
    lost.grow(5)
    (outcome,) = two_histories.run(_alone(two_histories, lost.bundle(3, 8))).outcomes
    assert (outcome.state.value, outcome.code) == ("quarantined", FORK)
    (equivocation,) = (audit for audit in two_histories.audits() if audit.KIND == "equivocation")
    assert (equivocation.stream, equivocation.seq) == (two_histories.world.stream, 5)
    assert two_histories.states(two_histories.medium(3, 5)) == ["frozen"]
    stream = SourceStream(IDENTITY.hub_id, two_histories.world.stream)
    unfreeze(
        two_histories.settings,
        stream,
        ImportRequest(operator=two_histories.name, reason="case 12"),
        two_histories.around(),
    )
    assert two_histories.states() == ["imported"]
    two_histories.check_now([1, 2, 3, 4, 5])


def test_i26_just_behind_a_heartbeat_the_past_is_compared(two_histories: Any) -> None:
    two_histories.bundle(1, 5)
    assert beat(two_histories, two_histories.world.checkpoint(5)).state.value == "heartbeat"
    lost = World(stream=two_histories.world.stream, body_bytes=17).grow(8)
    (outcome,) = two_histories.run(_alone(two_histories, lost.bundle(6, 8))).outcomes
    assert (outcome.state.value, outcome.code) == ("quarantined", FORK)


def test_i26_the_stream_with_two_histories_is_frozen_and_shown(two_histories: Any) -> None:
    bring(two_histories, 1, 3, beside(5))
    bring(two_histories, 4, 6, beside(5, 17))
    shown = {
        stream.stream.name: stream.frozen_at
        for stream in import_status(two_histories.import_dir).streams
    }
    assert shown == {two_histories.world.stream: None, BESIDE: 5}
    assert "thaw" in import_status(two_histories.import_dir).next_command()
    rebuild_ledger(
        two_histories.settings, ImportRequest(operator=two_histories.name), two_histories.around()
    )
    # All zones at a hub write one audit log, so that forks of others are told as well.
    again = {
        stream.stream.name: stream.frozen_at
        for stream in import_status(two_histories.import_dir).streams
    }
    assert shown.items() <= again.items()
    assert bring(two_histories, 4, 7, beside(5, 17)).code == FORK
    assert [audit.KIND for audit in two_histories.audits()].count("equivocation") == 1


def test_i26_an_operator_lets_the_other_history_go_on(two_histories: Any) -> None:
    """Where the exporting zone says that what was told before is what was lost."""
    bring(two_histories, 1, 3, beside(5))
    assert bring(two_histories, 4, 6, beside(4)).code == FORK
    words = ["thaw", BESIDE, "--hub-id", IDENTITY.hub_id.hex(), "--reason", "backup restored"]
    more = ["--operator", two_histories.name, "--config", str(two_histories.root / "bridge.toml")]
    subprocess.run(
        [sys.executable, "-m", "cli.main", "bridge", *words, "--forget-checkpoint", *more],
        check=True, capture_output=True, timeout=60,
    )  # fmt: skip
    unfrozen = two_histories.audits()[-1]
    assert (unfrozen.KIND, unfrozen.stream, unfrozen.checkpoint_dropped) == (
        "stream.thawed",
        BESIDE,
        True,
    )
    (place,) = (two_histories.import_dir.root / "quarantine").iterdir()
    (place / "1").rename(two_histories.import_dir.inbox / "again")
    assert two_histories.states() == ["imported"]
    assert bring(two_histories, 7, 8, beside(5)).state.value == "imported"


def test_i26_a_checkpoint_of_a_stolen_key_binds_nobody(
    two_histories: Any, import_zone: Any
) -> None:
    thief = SigningKey(h(b"thief"))
    folder = two_histories.import_dir.root / "checkpoints"
    assert bring(two_histories, 1, 3, beside(5)).state.value == "imported"
    assert [path.name for path in folder.iterdir()] == [f"{IDENTITY.hub_id.hex()}.cbor"]
    revoke(two_histories.root / "trust", thief.public, "stolen")
    lie = replace(
        two_histories.world.checkpoint(), hub_public=thief.public, created_at=START + 10**6
    )
    (folder / f"{IDENTITY.hub_id.hex()}.cbor").write_bytes(lie.signed(thief).encode())
    assert bring(two_histories, 4, 6, beside(4)).state.value == "imported"


def test_i26_what_a_kill_left_of_a_kept_checkpoint_is_gone_with_the_next_run(
    two_histories: Any,
) -> None:
    bring(two_histories, 1, 3, beside(5))
    half = two_histories.import_dir.root / "checkpoints" / f".{IDENTITY.hub_id.hex()}.cbor.new"
    half.write_bytes(b"half")
    two_histories.run()
    two_histories.check_now([1, 2, 3])
    assert not half.exists()
