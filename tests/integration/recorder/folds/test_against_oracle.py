"""Folds of archived random histories give the bytes of a naive fold, however the work is cut."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest

from recorder.folds.job import PreparedSource, carry_out, height_for, make, plan
from support.overlay import overlay_oracle
from support.recorder import fold_world
from veen.overlay.snapshot import OVERLAYS

NAMES = [overlay.name for overlay in OVERLAYS]
HUBS, STREAMS = 4, 50


@pytest.fixture(scope="module", params=range(HUBS), ids=lambda number: f"hub {number}")
def many(
    request: pytest.FixtureRequest,
    new_hub: Callable[[int], Any],
    a_signed_history: Callable[..., list[Any]],
    fold_long_factor: int,
    memory_folder: Callable[[str], Path],
) -> Any:
    """A hub with streams of every overlay, each in chunks of a size of its own, archived."""
    hub, chance = new_hub(1), Random(f"chunks {request.param}")
    for number in range(STREAMS * fold_long_factor):
        overlay, seed = NAMES[number % len(NAMES)], request.param * 10_000 + number
        size = chance.choice([chance.randint(1, 9), *[chance.randint(10, 60)] * 4])
        hub.entries_in_chunk = chance.randint(1, max(size // 3, 1))
        hub.write(f"{overlay} {number}", a_signed_history(seed, size, overlay), chance)
    return fold_world.in_directory(hub, memory_folder("store"))


def by_hands(archived: Any, job: Any, chance: Random) -> bytes:
    """The same, its nodes dealt out by chance to as many partitions as chance wills."""
    source, partitions = archived.source(job), chance.randint(1, 9)
    result = plan(job, source, chance.choice([height_for(job, partitions), chance.randrange(3)]))
    dealt: list[list[Any]] = [[] for _ in range(partitions)]
    for node in chance.sample(result.due, len(result.due)):
        chance.choice(dealt).append(node)
    summaries = []
    for nodes in dealt:
        own = archived.source(job)
        summaries += [make(job, own, node) for node in nodes]
    return bytes(carry_out(job, PreparedSource(source, result, summaries)).encode())


def test_most_histories_fill_several_chunks(many: Any) -> None:
    archive = many.archive
    sealed = [len(label.segments) for label in archive.labels(archive.latest())]
    assert len(sealed) >= STREAMS
    assert sum(count >= 3 for count in sealed) > 0.7 * len(sealed)
    sizes = {seg.end_seq - seg.start_seq + 1 for label in archive.labels(archive.latest())
             for seg in label.segments}  # fmt: skip
    assert len(sizes) >= 10


def test_every_way_of_folding_gives_the_bytes_of_the_naive_fold(many: Any) -> None:
    for stream, messages in many.hub.detail.items():
        chance, overlay = Random(stream), stream.split()[0]
        first = chance.choice([1, chance.randint(1, len(messages))])
        last = chance.randint(first, len(messages))
        expected = {"from_seq": first, "to_seq": last, "block": chance.randrange(1, 30)}
        due = overlay_oracle.folded(overlay, messages[first - 1 : last])
        plain = many.job(stream, overlay, **expected)
        job = many.job(stream, overlay, **expected, keeps_summaries=True)
        result = many.fold(plain)
        assert result.folded == due
        ways = {
            by_hands(many, plain, chance),
            many.fold(job).encode(),
            by_hands(many, job, chance),
            many.fold(job).encode(),
        }
        assert ways == {result.encode()}


def test_some_of_them_on_spark(many: Any, spark_context: Any, reader: Any) -> None:
    from spark_jobs.fold_overlay import FoldSite, fold_on  # noqa: PLC0415
    from veen.label import DEFAULT_PROFILE  # noqa: PLC0415
    from veen.objects.port import FileSettings  # noqa: PLC0415
    from veen.objects.store import StoreRef  # noqa: PLC0415

    services = StoreRef(FileSettings(Path(many.folder)))
    site = FoldSite(services=services, client=reader.root, profile=DEFAULT_PROFILE)
    streams = sorted(many.hub.detail.items())
    for stream, messages in Random(many.hub.now).sample(streams, 2):
        chance, overlay = Random(f"spark {stream}"), stream.split()[0]
        expected = {"block": chance.randint(1, 5), "keeps_summaries": chance.random() < 0.5}
        job = many.job(stream, overlay, **expected)
        result = fold_on(spark_context, site, job, chance.randint(1, 12))
        assert result.folded == overlay_oracle.folded(overlay, messages)
        assert result.encode() == many.fold(job).encode()
