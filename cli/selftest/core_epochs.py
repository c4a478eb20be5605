"""Core steps: one epoch follows another, and checkpoints tie their labels (spec 4.4, 12)."""

from __future__ import annotations

import time
from typing import Final

from cli.selftest import naive
from cli.selftest.step import Step, Unexpected, expect
from cli.selftest.world import ROLLING, World
from cli.selftest.writer import Writer
from veen.checkpoint import Checkpoint
from veen.errors import Failure
from veen.label import EpochLabels
from veen.receipt import Receipt

_PATIENCE_SEC: Final = 60.0


def epoch_roll(world: World) -> None:
    """The old label ends with a checkpoint, and the first of the new one names it (Vector C)."""
    labels, writer = world.labels(profile=ROLLING), world.writer(ROLLING)
    writer.epoch = old = _wait_for_epoch(world, after=0)
    before = [writer.accepted(), writer.accepted()]
    new = _wait_for_epoch(world, after=old)
    while new != old + 1:
        old, before = new, _begin_again(writer, new)
        new = _wait_for_epoch(world, after=old)
    writer.epoch, writer.client_seq, writer.prev_ack = new, 1, 0
    after = writer.accepted()
    _wait_for_epoch(world, after=new)
    _expect_end(world, labels, old, before)
    first = world.api().checkpoint(labels.at(new), 1)
    _expect_checkpoint(world, first, labels, new)
    expect("label_prev", first.label_prev, labels.at(old))
    expect("root of the new label", (first.upto_seq, first.mmr_root), (1, after.mmr_root))
    writer.epoch, writer.client_seq, writer.prev_ack = old, 3, 2
    writer.refused(Failure.EPOCH, writer.msg())


def _begin_again(writer: Writer, epoch: int) -> list[Receipt]:
    """A busy machine has slept through a whole epoch: the labels must be neighbours."""
    writer.epoch, writer.client_seq, writer.prev_ack = epoch, 1, 0
    return [writer.accepted(), writer.accepted()]


def _wait_for_epoch(world: World, after: int) -> int:
    """The hub's epoch, once it is beyond ``after``."""
    api, deadline = world.api(), time.monotonic() + _PATIENCE_SEC
    while (epoch := ROLLING.epoch(api.status().hub_ts)) <= after:
        _pause(deadline, f"epoch {after} to be over")
    return epoch


def _expect_end(world: World, labels: EpochLabels, epoch: int, receipts: list[Receipt]) -> None:
    """A closed label, with a checkpoint over all that it holds."""
    api, deadline = world.api(), time.monotonic() + _PATIENCE_SEC
    label = labels.at(epoch)
    while not any(
        one.closed for stream in api.streams() for one in stream.labels if one.label == label
    ):
        _pause(deadline, f"the label of epoch {epoch} to be closed")
    last = api.checkpoint_latest(label)
    _expect_checkpoint(world, last, labels, epoch)
    expect("upto_seq of the last checkpoint", last.upto_seq, len(receipts))
    expect("root of the last checkpoint", last.mmr_root, receipts[-1].mmr_root)
    leaves = [one.leaf_hash for one in receipts]
    expect("root over the leaves", last.mmr_root, naive.root(leaves))


def _expect_checkpoint(world: World, found: Checkpoint, labels: EpochLabels, epoch: int) -> None:
    last = world.api().receipt(found.label_curr, found.upto_seq)
    world.api().status().identity().verify_checkpoint(found, labels.profile, not_before=last.hub_ts)
    found.verify_labels(labels)
    expect("label and epoch", (found.label_curr, found.epoch), (labels.at(epoch), epoch))


def _pause(deadline: float, what: str) -> None:
    if time.monotonic() > deadline:
        raise Unexpected(f"expected {what} within {_PATIENCE_SEC:.0f} s")
    time.sleep(0.05)


STEPS: Final = (Step("epoch-roll", epoch_roll),)
