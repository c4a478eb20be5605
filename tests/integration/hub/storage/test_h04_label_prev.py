"""H04: label_prev of a checkpoint follows from its label, whichever checkpoint was first."""

from __future__ import annotations

from pathlib import Path

import pytest

from hub.storage.identity import read_identity
from support.hub import driven_hub
from veen.label import EpochLabels, routing_key


def checkpoints(root: Path, order: tuple[int, ...]) -> dict[int, bytes]:
    bench = driven_hub.Bench(root)
    stream, client = driven_hub.STREAMS[1], driven_hub.a_key("client")
    bench.send(client, stream, bench.authorize(client), 5)
    label = bench.label(stream)
    encoded = {upto: bench.committer.checkpoint(label, upto, bench.now).encode() for upto in order}
    bench.stop()
    assert bench.verify().ok
    return encoded


@pytest.mark.parametrize("order", [(5, 3, 1), (3, 5, 1)])
def test_h04_checkpoints_asked_for_in_any_order_are_the_same(
    tmp_path: Path, order: tuple[int, ...]
) -> None:
    """The same seeds, clock and messages: the bytes are the same, signatures included."""
    assert checkpoints(tmp_path / "one", (1, 3, 5)) == checkpoints(tmp_path / "other", order)


def test_h04_every_checkpoint_of_an_epoch_names_the_label_before(tmp_path: Path) -> None:
    bench = driven_hub.Bench(tmp_path / "hub")
    stream, client = driven_hub.STREAMS[1], driven_hub.a_key("client")
    bench.send(client, stream, bench.authorize(client), 2)
    routing = routing_key(read_identity(bench.datadir).hub_id)
    labels = EpochLabels(routing, stream.stream_id(), stream.profile)
    epoch = stream.profile.epoch(bench.now)
    for upto in (2, 1):
        checkpoint = bench.committer.checkpoint(labels.at(epoch), upto, bench.now)
        checkpoint.verify_labels(labels)
        assert checkpoint.label_prev == labels.at(epoch - 1)
    bench.stop()
