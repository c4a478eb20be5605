"""Any history of commits, restarts, epochs and checkpoints verifies, and rebuilds the same."""

from __future__ import annotations

import random
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from hub.storage.retention import Rule, plan_retention, prune
from support.hub import driven_hub
from support.long_form import LONG
from veen.captoken import Rate


def live(bench: Any, chance: random.Random) -> None:
    clients = [driven_hub.a_key(f"client {number}") for number in range(3)]
    tokens = [
        bench.authorize(client, Rate(per_sec=chance.randint(0, 3), burst=chance.randint(1, 40)))
        for client in clients
    ]
    for _ in range(chance.randint(10, 30)):
        which = chance.randrange(3)
        stream = chance.choice(driven_hub.STREAMS)
        for outcome in bench.send(clients[which], stream, tokens[which], chance.randint(1, 4)):
            if not isinstance(outcome, bytes):
                bench.sent[bench.label(stream), clients[which].public] -= 1
        bench.now += chance.choice([0, 0, 1, 1, 5, 1_800])
        if chance.random() < 0.2:
            bench.committer.tick(bench.now)
        if chance.random() < 0.15:
            bench.limits = replace(bench.limits, max_checkpoint_interval=chance.randint(1, 12))
            bench.restart()
        label_log = bench.committer.log.label(bench.label(driven_hub.STREAMS[0]))
        if label_log is not None and chance.random() < 0.2:
            upto = chance.randint(1, label_log.head_seq)
            bench.committer.checkpoint(label_log.label, upto, bench.now)


def prune_all(bench: Any) -> None:
    """Take away every sealed chunk."""
    later = bench.now + 100 * 86_400
    policy = [Rule("record/*", 1), Rule("epoch/*", 1)]
    chunks = plan_retention(bench.datadir, policy, driven_hub.STREAMS, later)
    prune(bench.datadir, chunks, limits=bench.limits, move_to=None, now=bench.now)


@pytest.mark.parametrize("seed", range(8))
def test_a_random_history(tmp_path: Path, seed: int) -> None:
    for turn in range(25 if LONG else 1):
        chance = random.Random(f"{seed} {turn}")
        bench = driven_hub.Bench(tmp_path / str(turn))
        live(bench, chance)
        bench.stop()
        report = bench.verify()
        assert (report.faults, report.derived) == ((), ())
        assert driven_hub.rebuild(bench.root, bench.limits).agreed
        shutil.rmtree(bench.datadir.derived)
        driven_hub.rebuild(bench.root, bench.limits)
        assert bench.verify().derived == ()
        prune_all(bench)
        report = bench.verify()
        assert (report.faults, report.derived) == ((), ())
        assert driven_hub.rebuild(bench.root, bench.limits).agreed
        bench.start()
        live(bench, chance)
        bench.stop()
        assert bench.verify().ok
