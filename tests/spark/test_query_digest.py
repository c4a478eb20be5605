"""The spark engine, the inline engine and the most obvious answer agree on every byte."""

from __future__ import annotations

import json
import os
import shutil
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import query_archive as archives
import query_histories as histories
from pyspark.sql import SparkSession

from recorder import timestamp
from recorder.index.engine import Answer, EngineLimits
from recorder.index.engine import answer as inline
from recorder.query.descriptor import Descriptor, normalise
from recorder.query.digest import ResultDigest, rows_hash
from recorder.query.evidence import evidence_hash, verified
from recorder.query.run import digest_of
from recorder.service.scheduling import JobFailed, JobTerms, LocalSubmitter, store_arguments
from recorder.service.spark_engine import SparkEngine
from spark_jobs import query_digest, query_reading
from spark_jobs.query_plan import plans
from spark_jobs.query_run import Question, answer
from veen.objects.settings import FileSettings

LONG = bool(os.environ.get("VEEN_TEST_LONG"))
SIZE, QUERIES = (2_400, 3_000) if LONG else (320, 320)
ENOUGH = EngineLimits(row_budget=10**9, max_rows=10**9)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("world")
    found = archives.a_world(folder, 21, SIZE)
    found.make_index(folder / "index")
    return found


@pytest.fixture(scope="module")
def archived(world: Any, tmp_path_factory: pytest.TempPathFactory) -> Any:
    return world.archived(FileSettings(tmp_path_factory.mktemp("archive") / "store"))


def a_query(**changes: Any) -> dict[str, Any]:
    whole = {"query_id": "q-1", "scope": list(histories.STREAMS), "filter": {}}
    return whole | {"projection": ["*"], "evidence": {"mode": "full"}} | changes


def read(query: dict[str, Any]) -> Descriptor:
    return normalise(query, query_id_if_missing="-")


def run(
    spark: SparkSession, world: Any, archived: Any, out: Path, *queries: dict[str, Any], **more: Any
) -> list[Question]:
    questions = archives.questions_of([read(one) for one in queries], out)
    found = more.pop("checkpoint", world.checkpoint)
    answer(spark.sparkContext, world.site(archived), found, questions, **more)
    return questions


def parts_of(out: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((out / "digest-parts.json").read_bytes())
    return found


def rows_in(out: Path) -> list[bytes]:
    return (out / "rows.jsonl").read_bytes().splitlines()


def queries_for(count: int) -> list[dict[str, Any]]:
    """Generated ones; some ask about a stream without messages too."""
    found = histories.queries(31, count)
    for number, one in enumerate(found):
        if number % 9 == 0:
            one["scope"] = [*one["scope"], archives.EMPTY]
    return list(found)


def test_three_engines_agree_on_every_byte(
    spark: SparkSession, world: Any, archived: Any, tmp_path: Path
) -> None:
    queries = queries_for(QUERIES)
    questions = run(spark, world, archived, tmp_path / "out", *queries)
    rows, witnesses = 0, 0
    for query, question in zip(queries, questions, strict=True):
        agreed = agree(world, query, question)
        rows, witnesses = rows + len(agreed.outcome.rows), witnesses + len(agreed.witnesses)
    assert rows > 10 * QUERIES
    assert witnesses > 10 * QUERIES


def agree(world: Any, query: dict[str, Any], question: Question) -> Answer:
    """What Spark left is what the oracle and the inline engine say."""
    told = parts_of(question.out)
    due = archives.due(world, query, question.result_id)
    assert rows_in(question.out) == due.pop("rows"), query
    chain = told.pop("rows_chain")
    assert told == due, query
    beside = inline(world.index, question.descriptor, world.checkpoint, world.hub, ENOUGH)
    assert rows_hash(beside.outcome.rows) == (told["rows_hash"], told["row_count"], chain)
    lines = [verified(one.entry, world.checkpoint) for one in beside.outcome.sampled]
    found = evidence_hash(question.descriptor, question.result_id, lines)
    assert found == told["evidence_hash"]
    assert [one.document() for one in beside.searched] == told["searched"]
    raw = b"".join(one.encode() for one in beside.witnesses)
    assert (question.out / "witnesses.cborseq").read_bytes() == raw
    return beside


@pytest.mark.parametrize(("first", "last"), [(None, 0.02), (None, 0.2), (0.3, 0.35), (0.6, 0.6)])
def test_a_span_of_time_whose_followers_are_not_read_gives_the_same_bytes(
    spark: SparkSession, world: Any, archived: Any, tmp_path: Path, first: float | None, last: float
) -> None:
    times = sorted(one["hub_ts"] for one in world.made)
    ends = {
        name: timestamp.render(times[int(share * len(times))] * 1_000)
        for name, share in (("from", first), ("to", last))
        if share is not None
    }
    query = a_query(filter={"time": ends})
    (question,) = run(spark, world, archived, tmp_path, query)
    assert agree(world, query, question).witnesses
    archive = archived.archive
    found = plans(archive, archive.latest(), world.checkpoint, [question.descriptor])
    assert any(one.bridges for one in found)


def files_of(out: Path) -> dict[str, bytes]:
    return {one.name: one.read_bytes() for one in out.iterdir()}


def mixed() -> list[dict[str, Any]]:
    """A selection and an aggregate with evidence, and one of each without."""
    grouped = {
        "group_by": ["subject_id", "payload.status"],
        "metrics": ["count", "sum(payload.ms)"],
    }
    return [
        a_query(),
        a_query(query_id="q-2", aggregate=grouped, evidence={"mode": "spot", "sample_rate": 0.3}),
        a_query(query_id="q-3", aggregate=grouped, evidence={"mode": "none"}),
        a_query(query_id="q-4", scope=[archives.EMPTY], evidence={"mode": "none"}),
    ]


def test_neither_tasks_nor_sorted_parts_nor_company_change_a_byte(
    spark: SparkSession,
    world: Any,
    archived: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    together = run(spark, world, archived, tmp_path / "together", *mixed())
    alone = [
        Question(one.descriptor, one.result_id, tmp_path / "alone" / one.result_id)
        for one in together
    ]
    monkeypatch.setattr(query_reading, "_SORTED", 60)
    for number, one in enumerate(alone[:2]):
        site = world.site(archived)
        answer(spark.sparkContext, site, world.checkpoint, [one], partitions=1 + 4 * number)
        assert files_of(one.out) == files_of(together[number].out)
    again = run(spark, world, archived, tmp_path / "again", *mixed(), partitions=3)
    assert [files_of(one.out) for one in again] == [files_of(one.out) for one in together]
    assert len(rows_in(together[0].out)) > 250
    assert 20 < len(rows_in(together[1].out)) == len(rows_in(together[2].out))
    assert rows_in(together[3].out) == []


def test_an_earlier_checkpoint_is_answered_from_a_longer_archive(
    spark: SparkSession, world: Any, archived: Any, tmp_path: Path
) -> None:
    (question,) = run(spark, world, archived, tmp_path, a_query(), checkpoint=world.early)
    beside = inline(world.index, question.descriptor, world.early, world.hub, ENOUGH)
    share = len(beside.outcome.rows) / SIZE
    assert len(rows_in(question.out)) == len(beside.outcome.rows)
    assert 0.2 < share < 0.35
    assert rows_hash(beside.outcome.rows).rows_hash == parts_of(question.out)["rows_hash"]
    raw = b"".join(one.encode() for one in beside.witnesses)
    assert (question.out / "witnesses.cborseq").read_bytes() == raw


def test_a_bucket_gives_the_same_bytes(
    spark: SparkSession, world: Any, archived: Any, settings_for: Any, tmp_path: Path
) -> None:
    in_bucket = world.archived(settings_for("s3"))
    query = a_query(filter={"time": {"from": "2023-11-14T22:30:00Z"}})
    found = [
        run(spark, world, one, tmp_path / str(number), query)
        for number, one in enumerate((archived, in_bucket))
    ]
    one, other = (files_of(each[0].out) for each in found)
    assert one == other
    assert len(one["rows.jsonl"]) > 1_000


class Submitted:
    """The engine as the service has it, with the job submitted to Spark on this host."""

    def __init__(self, world: Any, archived: Any, folder: Path, master: str = "local[2]") -> None:
        self.world = world
        terms = JobTerms(
            Path(query_digest.__file__), master, store_arguments(archived.settings),
            archived.hub_id, world.client, world.client.with_suffix(".passphrase"),
        )  # fmt: skip
        self.work = folder / "work"
        submitter = LocalSubmitter(terms, time.sleep)
        self.engine = SparkEngine(submitter, self.work, folder / "results", lambda: 5_000)

    def run(self, query: dict[str, Any], result_id: str) -> ResultDigest:
        return self.engine.run(read(query), result_id, self.world.checkpoint)


def test_a_submitted_query_has_the_digest_of_the_inline_engine(
    environment: dict[str, str], world: Any, archived: Any, tmp_path: Path
) -> None:
    query = a_query(scope=["record/users"], evidence={"mode": "spot", "sample_rate": 0.5})
    beside = inline(world.index, read(query), world.checkpoint, world.hub, ENOUGH)
    due = digest_of(
        read(query), beside.outcome, result_id="r-7", executed_at_ms=5_000,
        checkpoint=world.checkpoint, searched=beside.searched,
    )  # fmt: skip
    submitted = Submitted(world, archived, tmp_path)
    assert submitted.run(query, "r-7").encode() == due.encode()
    kept = (tmp_path / "results" / "r-7" / "witnesses.cborseq").read_bytes()
    assert kept == b"".join(one.encode() for one in beside.witnesses)
    assert "the passphrase" not in (submitted.work / "r-7" / "spark.log").read_text()


@pytest.mark.long
def test_a_submitted_query_fails_with_the_name_of_what_is_wrong(
    environment: dict[str, str], world: Any, archived: Any, tmp_path: Path
) -> None:
    shutil.copytree(archived.settings.root, tmp_path / "store")
    broken = replace(archived, settings=FileSettings(tmp_path / "store"))
    name = world.files("record/users")[3]
    raw = bytearray((world.root / name).read_bytes())
    raw[300] ^= 1
    broken.overwrite(broken.key_of(name), bytes(raw))
    submitted = Submitted(world, broken, tmp_path)
    with pytest.raises(JobFailed, match=f"ended with 3: .*query_digest: record/users: {name}"):
        submitted.run(a_query(scope=["record/users"]), "r-8")
    assert [one.name for one in (submitted.work / "r-8").iterdir() if one.is_dir()] == []
    assert not (tmp_path / "results").exists()
