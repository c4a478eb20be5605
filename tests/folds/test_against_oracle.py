"""Folds of archived random histories give the bytes of a naive fold, however the work is cut."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from random import Random
from types import ModuleType
from typing import Any

import pytest

from recorder.folds.job import carry_out
from recorder.folds.parallel import PreparedSource, make, plan
from veen.overlay.registry import OVERLAYS

NAMES = [overlay.name for overlay in OVERLAYS]
CHUNKS = (4, 11, 32, 200)
STREAMS = 50


@pytest.fixture(scope="module", params=CHUNKS, ids=lambda entries: f"chunks of {entries}")
def many(
    request: pytest.FixtureRequest,
    new_hub: Callable[[int], Any],
    a_history: Callable[..., list[Any]],
    world: ModuleType,
    long_factor: int,
    swift: Callable[[str], Path],
) -> Any:
    """A hub with streams of every overlay, all of them archived."""
    hub, chance = new_hub(request.param), Random(request.param)
    streams = {}
    for number in range(STREAMS * long_factor):
        overlay, seed = NAMES[number % len(NAMES)], request.param * 10_000 + number
        streams[f"{overlay} {number}"] = a_history(seed, chance.randrange(1, 70), overlay)
    hub.write_all(streams, chance)
    return world.in_directory(hub, swift("store"))


def by_hands(archived: Any, job: Any, chance: Random) -> bytes:
    """The same, its nodes made apart and in an order of chance."""
    source = archived.source(job)
    found = plan(job, source, chance.randrange(3))
    due = chance.sample(found.due, len(found.due))
    made = [make(job, archived.source(job), node) for node in due]
    return bytes(carry_out(job, PreparedSource(source, found, made)).encode())


def test_every_way_of_folding_gives_the_bytes_of_the_naive_fold(
    many: Any, naive: ModuleType
) -> None:
    for stream, messages in many.hub.told.items():
        chance, overlay = Random(stream), stream.split()[0]
        first = chance.choice([1, chance.randint(1, len(messages))])
        last = chance.randint(first, len(messages))
        wanted = {"from_seq": first, "to_seq": last, "block": chance.randrange(1, 30)}
        due = naive.folded(overlay, messages[first - 1 : last])
        plain = many.job(stream, overlay, **wanted)
        kept = many.job(stream, overlay, **wanted, keeps_summaries=True)
        result = many.fold(plain)
        assert result.folded == due
        ways = {
            by_hands(many, plain, chance),
            many.fold(kept).encode(),
            by_hands(many, kept, chance),
            many.fold(kept).encode(),
        }
        assert ways == {result.encode()}


def test_some_of_them_on_spark(many: Any, naive: ModuleType, spark: Any, reader: Any) -> None:
    from spark_jobs.fold_tasks import Site, fold_on  # noqa: PLC0415
    from spark_jobs.store_door import StoreDoor  # noqa: PLC0415
    from veen.objects.settings import FileSettings  # noqa: PLC0415
    from veen.profile import DEFAULT_PROFILE  # noqa: PLC0415

    door = StoreDoor(FileSettings(Path(many.folder)))
    site = Site(door=door, client=reader.root, profile=DEFAULT_PROFILE)
    for stream, messages in list(many.hub.told.items())[:2]:
        chance, overlay = Random(f"spark {stream}"), stream.split()[0]
        wanted = {"block": chance.randrange(1, 9), "keeps_summaries": chance.random() < 0.5}
        job = many.job(stream, overlay, **wanted)
        result = fold_on(spark, site, job, chance.randrange(4))
        assert result.folded == naive.folded(overlay, messages)
        assert result.encode() == many.fold(job).encode()
