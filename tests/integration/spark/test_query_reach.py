"""A query on Spark speaks up to the latest checkpoint that the archive has reached."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from recorder.archive.store import archive_in
from recorder.query.descriptor import Descriptor, normalise
from recorder.query.digest import ResultDigest
from recorder.service.execute import NoQueryCheckpoint
from recorder.service.spark import (
    ArchivedCheckpoints,
    JobFailed,
    QueryNotArchived,
    SparkEngine,
    SparkQueries,
    SparkWork,
)
from support.recorder.query_histories import STREAMS
from support.spark.query_archive import EMPTY, a_world
from veen.errors import Untrusted
from veen.hub_identity import HubIdentity
from veen.objects.port import FileSettings
from veen.recorder_checkpoint import RecorderCheckpoint


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("reach")
    worlds = a_world(folder, 11, 90)
    worlds.make_index(folder / "index")
    return worlds


@pytest.fixture
def store(tmp_path: Path) -> FileSettings:
    return FileSettings(tmp_path / "store")


def a_question(*scope: str) -> Descriptor:
    whole = {"scope": list(scope or STREAMS), "filter": {}, "projection": ["*"]}
    return normalise(whole | {"evidence": {"mode": "none"}}, query_id_if_missing="q-1")


@pytest.fixture
def archived(world: Any, store: FileSettings) -> ArchivedCheckpoints:
    def hub() -> HubIdentity:
        result: HubIdentity = world.hub
        return result

    return ArchivedCheckpoints(
        world.index, archive=lambda: archive_in(store, world.hub.hub_id, {}), hub=hub
    )


def test_an_archive_as_far_as_the_index_gives_the_latest(
    world: Any, store: FileSettings, archived: ArchivedCheckpoints
) -> None:
    world.archived(store)
    assert archived.latest(a_question()) == world.checkpoint


def test_an_archive_behind_the_index_gives_the_checkpoint_that_it_has_reached(
    world: Any, store: FileSettings, archived: ArchivedCheckpoints
) -> None:
    world.archived_early(store)
    assert world.early != world.checkpoint
    assert archived.latest(a_question()) == world.early
    world.archived(store)
    assert archived.latest(a_question()) == world.checkpoint


def test_streams_without_events_keep_nobody_back(
    world: Any, store: FileSettings, archived: ArchivedCheckpoints
) -> None:
    world.archived_early(store)
    assert archived.latest(a_question(EMPTY)) == world.checkpoint


def test_no_archive_and_one_of_nothing_name_what_is_to_be_done(
    world: Any, store: FileSettings, archived: ArchivedCheckpoints
) -> None:
    with pytest.raises(QueryNotArchived, match=r"expected a readable store.*veen archive push"):
        archived.latest(a_question())
    (store.root / "objects").mkdir(parents=True)
    with pytest.raises(QueryNotArchived, match=r"no archive of hub.*veen archive push"):
        archived.latest(a_question())


def test_a_stream_that_no_checkpoint_speaks_of_has_none(
    world: Any, store: FileSettings, archived: ArchivedCheckpoints
) -> None:
    world.archived(store)
    with pytest.raises(NoQueryCheckpoint):
        archived.latest(a_question("record/unheard-of"))


def test_a_checkpoint_that_the_hub_has_not_signed_is_refused(
    world: Any, store: FileSettings
) -> None:
    world.archived(store)
    checkpoints = ArchivedCheckpoints(
        world.index,
        archive=lambda: archive_in(store, world.hub.hub_id, {}),
        hub=lambda: replace(world.hub, hub_keys=()),
    )
    with pytest.raises(Untrusted):
        checkpoints.latest(a_question())


class Scheduled:
    """A scheduler that notes which checkpoint a job was given, and fails."""

    def __init__(self) -> None:
        self.given: list[RecorderCheckpoint] = []

    def run(self, work: SparkWork, is_over: Callable[[], bool]) -> None:
        self.given.append(RecorderCheckpoint.decode(work.checkpoint.read_bytes()))
        assert not is_over()
        raise JobFailed("the runner ended")


def test_the_checkpoint_is_kept_before_the_job_starts_and_stays_when_it_is_run_again(
    world: Any, store: FileSettings, archived: ArchivedCheckpoints, tmp_path: Path
) -> None:
    world.archived_early(store)
    jobs = Scheduled()

    def run() -> ResultDigest:
        engine = SparkEngine(jobs, tmp_path / "work", tmp_path / "rows", lambda: 1)
        return SparkQueries(engine, archived).run(a_question(), "r-1")

    with pytest.raises(JobFailed):
        run()
    world.archived(store)
    with pytest.raises(JobFailed):
        run()
    assert jobs.given == [world.early, world.early]
