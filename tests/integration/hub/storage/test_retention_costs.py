"""Retention costs what it removes, however many chunks a label has or had."""

from __future__ import annotations

import random
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from hub.storage.datadir import DataDir
from hub.storage.index import Index
from hub.storage.retention import Rule, manifest, plan_retention, prune
from support.hub import driven_hub
from support.hub.counted import counted_calls, counted_io
from veen.errors import Untrusted, VeenError
from veen.log import layout
from veen.log.layout import ChunkName, leaf_file, tombstone_file

DAY = 86_400
POLICY = [Rule("record/*", 1)]
STREAM = driven_hub.STREAMS[0]


def grown(bench: Any, chunks: int) -> None:
    """A label with so many sealed chunks of 8 entries, two a day, and an open one."""
    client = driven_hub.a_key("client")
    token = bench.authorize(client)
    for _ in range(chunks):
        bench.send(client, STREAM, token, 8)
        bench.now += DAY // 2
    bench.send(client, STREAM, token)
    bench.stop()


def planned(bench: Any, now: int) -> list[ChunkName]:
    return plan_retention(bench.datadir, POLICY, driven_hub.STREAMS, now)


def pruned(bench: Any, names: list[ChunkName]) -> list[ChunkName]:
    return prune(bench.datadir, names, limits=bench.limits, move_to=None, now=bench.now)


def oracle(datadir: DataDir, label: bytes, before: int) -> list[ChunkName]:
    """Look at every chunk that the label ever had."""
    with closing(Index(datadir.index, writable=False)) as index:
        row = index.label(label)
        assert row is not None
        rows = index.chunks(row.label_no)
    old = [
        ChunkName(label, chunk.start_seq, chunk.end_seq) for chunk in rows if chunk.last_ts < before
    ]
    return [name for name in old if datadir.file(layout.chunk(name)).exists()]


@pytest.mark.parametrize("lost", [tombstone_file, leaf_file, layout.summary])
def test_a_chunk_whose_predecessor_lost_its_remains_is_not_pruned(
    hub_bench: Any, lost: Any
) -> None:
    grown(hub_bench, 4)
    first, second, *_ = planned(hub_bench, hub_bench.now + 9 * DAY)
    pruned(hub_bench, [first])
    hub_bench.datadir.file(lost(first)).unlink()
    with pytest.raises(Untrusted):
        pruned(hub_bench, [second])
    assert hub_bench.datadir.file(layout.chunk(second)).exists()


def test_a_chunk_whose_own_artefacts_disagree_is_not_pruned(hub_bench: Any) -> None:
    grown(hub_bench, 3)
    first, second, *_ = planned(hub_bench, hub_bench.now + 9 * DAY)
    hub_bench.datadir.file(layout.checkpoint(*first[::2])).write_bytes(
        hub_bench.datadir.file(layout.checkpoint(*second[::2])).read_bytes()
    )
    with pytest.raises(Untrusted, match="disagree"):
        pruned(hub_bench, [first])
    assert hub_bench.datadir.file(layout.chunk(first)).exists()


def test_a_chunk_deleted_by_hand_stops_the_pruning_behind_it(hub_bench: Any) -> None:
    grown(hub_bench, 4)
    names = planned(hub_bench, hub_bench.now + 9 * DAY)
    hub_bench.datadir.file(layout.chunk(names[1])).unlink()
    with pytest.raises(VeenError):
        pruned(hub_bench, [names[0], names[2]])
    assert not hub_bench.datadir.file(layout.chunk(names[0])).exists()
    assert hub_bench.datadir.file(layout.chunk(names[2])).exists()


def test_chunks_that_were_put_back_are_planned_again(hub_bench: Any, tmp_path: Path) -> None:
    grown(hub_bench, 5)
    names = planned(hub_bench, hub_bench.now + 9 * DAY)
    copies = {name: hub_bench.datadir.file(layout.chunk(name)).read_bytes() for name in names}
    pruned(hub_bench, names)
    assert planned(hub_bench, hub_bench.now + 9 * DAY) == []
    for name in names[:2]:
        hub_bench.datadir.file(layout.chunk(name)).write_bytes(copies[name])
    assert planned(hub_bench, hub_bench.now + 9 * DAY) == names[:2]


def test_plans_are_those_of_a_look_at_every_chunk(hub_bench: Any) -> None:
    grown(hub_bench, 23)
    chance, now = random.Random(3), driven_hub.START
    label = hub_bench.label(STREAM)
    for _ in range(14):
        now += chance.randrange(3 * DAY)
        names = planned(hub_bench, now)
        assert names == oracle(hub_bench.datadir, label, now - DAY)
        done = names[: chance.randint(0, len(names))]
        assert pruned(hub_bench, done) == done
    segments = manifest(hub_bench.datadir, label).segments
    assert [segment.end_seq for segment in segments] == list(range(8, 23 * 8 + 1, 8))
    assert hub_bench.verify().faults == ()


def test_pruning_a_chunk_costs_the_same_in_a_long_history(hub_bench: Any, tmp_path: Path) -> None:
    """A plan with one chunk to prune, and its pruning; half of the chunks are pruned before."""
    costs = []
    for count, hub in ((8, hub_bench), (160, driven_hub.Bench(tmp_path / "large"))):
        grown(hub, count)
        names = planned(hub, driven_hub.START + (count // 4) * DAY)
        pruned(hub, names[:-1])
        now = driven_hub.START + (count // 4) * DAY
        (due,) = planned(hub, now)
        costs.append((
            counted_calls(partial(planned, hub, now)),
            counted_calls(partial(pruned, hub, [due])),
            counted_io(partial(planned, hub, now)).bytes_read,
        ))  # fmt: skip
    (plan, remove, read), (large_plan, large_remove, large_read) = costs
    assert large_plan <= plan + 300
    assert large_remove <= remove + 200
    assert large_read <= read + 20_000
