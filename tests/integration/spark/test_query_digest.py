"""The spark engine, the inline engine and the most obvious answer agree on every byte."""

from __future__ import annotations

import json
import shutil
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from recorder import timestamp
from recorder.index.engine import EngineLimits, QueryAnswer
from recorder.index.engine import answer as inline
from recorder.query.descriptor import Descriptor, normalise
from recorder.query.digest import ResultDigest, rows_hash
from recorder.query.evidence import evidence_hash, verified
from recorder.query.execute import digest_of
from recorder.service.spark import JobFailed, JobTerms, LocalSubmitter, SparkEngine
from spark_jobs import query_digest
from spark_jobs.query_digest import SparkQuestion, answer
from spark_jobs.query_plan import plans
from support.long_form import LONG
from support.recorder import query_histories as histories
from support.spark import query_archive as archives
from veen.objects.port import FileSettings, StoreLocation
from veen.system.spark_submit import SparkSubmit

pytestmark = pytest.mark.e2e

SIZE, QUERIES = (2_400, 3_000) if LONG else (320, 320)
ENOUGH = EngineLimits(row_budget=10**9, max_rows=10**9)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("world")
    worlds = archives.a_world(folder, 21, SIZE)
    worlds.make_index(folder / "index")
    return worlds


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
) -> list[SparkQuestion]:
    questions = archives.questions_of([read(query) for query in queries], out)
    result = more.pop("checkpoint", world.checkpoint)
    answer(spark.sparkContext, world.site(archived), result, questions, **more)
    return questions


def parts_of(out: Path) -> dict[str, Any]:
    document: dict[str, Any] = json.loads((out / "digest-parts.json").read_bytes())
    return document


def rows_in(out: Path) -> list[bytes]:
    return (out / "rows.jsonl").read_bytes().splitlines()


def queries_for(count: int) -> list[dict[str, Any]]:
    """Generated ones; some ask about a stream without messages too."""
    result = histories.queries(31, count)
    for number, item in enumerate(result):
        if number % 9 == 0:
            item["scope"] = [*item["scope"], archives.EMPTY]
    return list(result)


def test_three_engines_agree_on_every_byte(
    spark_session: SparkSession, world: Any, archived: Any, tmp_path: Path
) -> None:
    queries = queries_for(QUERIES)
    questions = run(spark_session, world, archived, tmp_path / "out", *queries)
    rows, witnesses = 0, 0
    for query, question in zip(queries, questions, strict=True):
        agreed = agree(world, query, question)
        rows, witnesses = rows + len(agreed.outcome.rows), witnesses + len(agreed.witnesses)
    assert rows > 10 * QUERIES
    assert witnesses > 10 * QUERIES


def agree(world: Any, query: dict[str, Any], question: SparkQuestion) -> QueryAnswer:
    """What Spark left is what the oracle and the inline engine say."""
    parts = parts_of(question.out)
    due = archives.due(world, query, question.result_id)
    assert rows_in(question.out) == due.pop("rows"), query
    chain = parts.pop("rows_chain")
    assert parts == due, query
    beside = inline(world.index, question.descriptor, world.checkpoint, world.hub, ENOUGH)
    assert rows_hash(beside.outcome.rows) == (parts["rows_hash"], parts["row_count"], chain)
    lines = [verified(sampled.entry, world.checkpoint) for sampled in beside.outcome.sampled]
    result = evidence_hash(question.descriptor, question.result_id, lines)
    assert result == parts["evidence_hash"]
    assert [searched.document() for searched in beside.searched] == parts["searched"]
    raw = b"".join(witness.encode() for witness in beside.witnesses)
    assert (question.out / "witnesses.cborseq").read_bytes() == raw
    return beside


@pytest.mark.parametrize(("first", "last"), [(None, 0.02), (None, 0.2), (0.3, 0.35), (0.6, 0.6)])
def test_a_span_of_time_whose_followers_are_not_read_gives_the_same_bytes(
    spark_session: SparkSession,
    world: Any,
    archived: Any,
    tmp_path: Path,
    first: float | None,
    last: float,
) -> None:
    times = sorted(item["hub_ts"] for item in world.plain_items)
    ends = {
        name: timestamp.render(times[int(share * len(times))] * 1_000)
        for name, share in (("from", first), ("to", last))
        if share is not None
    }
    query = a_query(filter={"time": ends})
    (question,) = run(spark_session, world, archived, tmp_path, query)
    assert agree(world, query, question).witnesses
    archive = archived.archive
    stream_plans = plans(archive, archive.latest(), world.checkpoint, [question.descriptor])
    assert any(plan.bridges for plan in stream_plans)


def files_of(out: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in out.iterdir()}


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
    spark_session: SparkSession, world: Any, archived: Any, tmp_path: Path
) -> None:
    together = run(spark_session, world, archived, tmp_path / "together", *mixed())
    alone = [
        SparkQuestion(item.descriptor, item.result_id, tmp_path / "alone" / item.result_id)
        for item in together
    ]
    for number, question in enumerate(alone[:2]):
        site = world.site(archived)
        answer(
            spark_session.sparkContext,
            site,
            world.checkpoint,
            [question],
            partitions=1 + 4 * number,
            partition_rows=60,
        )
        assert files_of(question.out) == files_of(together[number].out)
    again = run(spark_session, world, archived, tmp_path / "again", *mixed(), partitions=3)
    assert [files_of(item.out) for item in again] == [files_of(item.out) for item in together]
    assert len(rows_in(together[0].out)) > 250
    assert 20 < len(rows_in(together[1].out)) == len(rows_in(together[2].out))
    assert rows_in(together[3].out) == []


def test_an_earlier_checkpoint_is_answered_from_a_longer_archive(
    spark_session: SparkSession, world: Any, archived: Any, tmp_path: Path
) -> None:
    (question,) = run(spark_session, world, archived, tmp_path, a_query(), checkpoint=world.early)
    beside = inline(world.index, question.descriptor, world.early, world.hub, ENOUGH)
    share = len(beside.outcome.rows) / SIZE
    assert len(rows_in(question.out)) == len(beside.outcome.rows)
    assert 0.2 < share < 0.35
    assert rows_hash(beside.outcome.rows).rows_hash == parts_of(question.out)["rows_hash"]
    raw = b"".join(witness.encode() for witness in beside.witnesses)
    assert (question.out / "witnesses.cborseq").read_bytes() == raw


def test_a_bucket_gives_the_same_bytes(
    spark_session: SparkSession, world: Any, archived: Any, store_settings_for: Any, tmp_path: Path
) -> None:
    in_bucket = world.archived(store_settings_for("s3"))
    query = a_query(filter={"time": {"from": "2023-11-14T22:30:00Z"}})
    result = [
        run(spark_session, world, item, tmp_path / str(number), query)
        for number, item in enumerate((archived, in_bucket))
    ]
    value, other = (files_of(each[0].out) for each in result)
    assert value == other
    assert len(value["rows.jsonl"]) > 1_000


class Submitted:
    """The engine as the service has it, with the job submitted to Spark on this host."""

    def __init__(self, world: Any, archived: Any, folder: Path, master: str = "local[2]") -> None:
        self.world = world
        terms = JobTerms(
            Path(query_digest.__file__), SparkSubmit(master, {}),
            StoreLocation.of(archived.settings),
            archived.hub_id, world.client, world.client.with_suffix(".passphrase"),
        )  # fmt: skip
        self.work = folder / "work"
        submitter = LocalSubmitter(terms, time.sleep)
        self.engine = SparkEngine(submitter, self.work, folder / "results", lambda: 5_000)

    def run(self, query: dict[str, Any], result_id: str) -> ResultDigest:
        return self.engine.run(read(query), result_id, self.world.checkpoint)


def test_a_submitted_query_has_the_digest_of_the_inline_engine(
    spark_environment: dict[str, str], world: Any, archived: Any, tmp_path: Path
) -> None:
    query = a_query(scope=["record/users"], evidence={"mode": "spot", "sample_rate": 0.5})
    beside = inline(world.index, read(query), world.checkpoint, world.hub, ENOUGH)
    due = digest_of(
        read(query), beside.outcome, result_id="r-7", executed_at_ms=5_000,
        checkpoint=world.checkpoint, searched=beside.searched,
    )  # fmt: skip
    submitted = Submitted(world, archived, tmp_path)
    assert submitted.run(query, "r-7").encode() == due.encode()
    raw = (tmp_path / "results" / "r-7" / "witnesses.cborseq").read_bytes()
    assert raw == b"".join(witness.encode() for witness in beside.witnesses)
    assert "the passphrase" not in (submitted.work / "r-7" / "spark.log").read_text()


@pytest.mark.long
def test_a_submitted_query_fails_with_the_name_of_what_is_wrong(
    spark_environment: dict[str, str], world: Any, archived: Any, tmp_path: Path
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
    assert [path.name for path in (submitted.work / "r-8").iterdir() if path.is_dir()] == []
    assert not (tmp_path / "results").exists()
