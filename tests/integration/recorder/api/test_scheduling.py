"""Queries on Spark as the service sees them: what is scheduled, and what is taken from a job."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil  # type: ignore[import-untyped]
import pytest

from recorder.query.descriptor import Descriptor, normalise
from recorder.query.digest import rows_hash
from recorder.service.airflow import AirflowAccount, AirflowScheduler
from recorder.service.execute import RowsFile
from recorder.service.spark import (
    JobFailed,
    JobTerms,
    LocalSubmitter,
    SparkEngine,
    SparkWork,
    TimeLimit,
)
from support.local_http import Answering, served
from veen.digest import h
from veen.errors import Untrusted
from veen.label import stream_id
from veen.objects.port import StoreLocation
from veen.recorder_checkpoint import RecorderCheckpoint, StreamEnd, log_root
from veen.system.spark_submit import SparkSubmit
from veen.wire import canonical_json

RESULT_ID = "r-" + "2" * 32
STREAM = "record/app/http"
ROWS = [{"origin": "a", "payload.number": number} for number in range(5)]


def never() -> bool:
    return False


@pytest.fixture
def work(tmp_path: Path) -> SparkWork:
    (tmp_path / RESULT_ID).mkdir()
    return SparkWork(RESULT_ID, tmp_path / RESULT_ID)


class Airflow:
    """The two routes of Airflow's API that matter here, with its statuses."""

    def __init__(self, states: list[str]) -> None:
        self.states = states
        self.started: list[dict[str, Any]] = []
        self.asked: list[str] = []


@contextmanager
def airflow(states: list[str]) -> Iterator[tuple[Airflow, str]]:
    at = Airflow(states)

    class Handler(Answering):
        def post(self) -> None:
            body = json.loads(self.body())
            if self.path == "/auth/token":
                is_known = body == {"username": "veen", "password": "secret"}
                self._tell(201 if is_known else 401, {"access_token": "t0ken"})
            elif not self._is_known():
                self._tell(401, {"detail": "who?"})
            elif self.path != "/api/v2/dags/veen_query/dagRuns":
                self._tell(404, {"detail": self.path})
            elif body["dag_run_id"] in [item["dag_run_id"] for item in at.started]:
                self._tell(409, {"detail": "it exists"})
            else:
                at.started.append(body)
                self._tell(200, {"dag_run_id": body["dag_run_id"], "state": "queued"})

        def get(self) -> None:
            at.asked.append(self.path)
            state = at.states.pop(0) if len(at.states) > 1 else at.states[0]
            self._tell(200 if self._is_known() else 401, {"state": state})

        def _is_known(self) -> bool:
            return self.headers["Authorization"] == "Bearer t0ken"

        def _tell(self, status: int, document: dict[str, Any]) -> None:
            self.say(status, json.dumps(document).encode())

    with served(Handler) as url:
        yield at, url


def scheduler(url: str, password: str = "secret") -> AirflowScheduler:
    return AirflowScheduler(url, AirflowAccount("veen", password), lambda _: None)


def test_airflow_is_asked_until_its_run_has_ended(work: SparkWork) -> None:
    with airflow(["queued", "running", "success"]) as (at, url):
        scheduler(url).run(work, never)
    (started,) = at.started
    assert started["conf"] == {"result_id": RESULT_ID}
    assert started["dag_run_id"] == RESULT_ID
    assert "logical_date" in started
    assert at.asked == [f"/api/v2/dags/veen_query/dagRuns/{RESULT_ID}"] * 3


def test_a_run_that_exists_is_taken_up_and_not_started_again(work: SparkWork) -> None:
    with airflow(["running", "success"]) as (at, url):
        at.started.append({"dag_run_id": RESULT_ID})
        scheduler(url).run(work, never)
        assert len(at.started) == 1


def test_a_failed_run_fails_the_query(work: SparkWork) -> None:
    with airflow(["failed"]) as (_, url), pytest.raises(JobFailed, match="failed"):
        scheduler(url).run(work, never)


def test_the_end_of_the_service_ends_the_waiting(work: SparkWork) -> None:
    with (
        airflow(["running"]) as (_, url),
        pytest.raises(JobFailed, match="continues when it starts"),
    ):
        scheduler(url).run(work, lambda: True)


def test_a_wrong_password_and_a_silent_airflow_are_reported(work: SparkWork) -> None:
    with airflow(["success"]) as (_, url), pytest.raises(JobFailed, match="401"):
        scheduler(url, "wrong").run(work, never)
    with pytest.raises(JobFailed, match="did not answer") as caught:
        scheduler(url).run(work, never)
    assert "secret" not in str(caught.value)


def terms(job: Path) -> JobTerms:
    spark, store = SparkSubmit("local[1]", {}), StoreLocation(url="file:///x")
    return JobTerms(job, spark, store, b"\1" * 32, Path("/client"), None)


def test_a_local_job_gets_all_of_its_work(work: SparkWork, tmp_path: Path) -> None:
    work.out.mkdir()
    (work.out / "half.jsonl").write_text("what an interrupted run has left")
    job = tmp_path / "job.py"
    job.write_text(
        "import json, pathlib, sys\n"
        "out = pathlib.Path(sys.argv[-1])\n"
        "out.mkdir()\n"
        "(out / 'told.json').write_text(json.dumps(sys.argv[1:]))\n"
    )
    LocalSubmitter(terms(job), time.sleep).run(work, never)
    document = json.loads((work.out / "told.json").read_text())
    assert document == [
        "--descriptor", str(work.descriptor), "--result-id", RESULT_ID,
        "--checkpoint", str(work.checkpoint), "--store", "file:///x",
        "--hub-id", "01" * 32, "--client", "/client", "--out", document[-1],
    ]  # fmt: skip
    assert Path(document[-1]).parent == work.directory
    assert not Path(document[-1]).exists()
    assert [path.name for path in work.out.iterdir()] == ["told.json"]


def test_a_local_job_that_fails_says_its_last_words(work: SparkWork, tmp_path: Path) -> None:
    job = tmp_path / "job.py"
    job.write_text("import sys\nsys.exit('no archive here')\n")
    with pytest.raises(JobFailed, match="no archive here"):
        LocalSubmitter(terms(job), time.sleep).run(work, never)


class Hung:
    """A job that does not end before it is told to."""

    def run(self, work: SparkWork, is_over: Callable[[], bool]) -> None:
        while not is_over():
            time.sleep(0.001)
        raise JobFailed(f"the service ended {work.result_id}")


def test_a_job_that_hangs_is_given_up_when_its_time_is_over(work: SparkWork) -> None:
    with pytest.raises(JobFailed, match=r"within 0\.05 seconds \(spark_timeout_sec\).*spark\.log"):
        TimeLimit(Hung(), 0.05, time.monotonic).run(work, never)


def test_a_paused_dag_is_given_up_when_its_time_is_over(work: SparkWork) -> None:
    with airflow(["queued"]) as (_, url), pytest.raises(JobFailed, match="veen_query is paused"):
        TimeLimit(scheduler(url), 0.2, time.monotonic).run(work, never)


def test_a_job_that_the_end_of_the_service_ends_is_not_late(work: SparkWork) -> None:
    with pytest.raises(JobFailed, match="the service ended"):
        TimeLimit(Hung(), 0.0, time.monotonic).run(work, lambda: True)


def test_a_local_job_that_is_given_up_runs_no_more(work: SparkWork, tmp_path: Path) -> None:
    job, detail = tmp_path / "job.py", tmp_path / "pid"
    job.write_text(
        "import os, pathlib, time\n"
        f"pathlib.Path({str(tmp_path / 'half')!r}).write_text(str(os.getpid()))\n"
        f"os.rename({str(tmp_path / 'half')!r}, {str(detail)!r})\n"
        "time.sleep(600)\n"
    )

    def seconds() -> float:
        """Its time is over as soon as it runs."""
        return 10.0 if detail.exists() else 0.0

    with pytest.raises(JobFailed, match="spark_timeout_sec"):
        TimeLimit(LocalSubmitter(terms(job), time.sleep), 8, seconds).run(work, never)
    assert not is_running(int(detail.read_text()))


def is_running(pid: int) -> bool:
    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def a_checkpoint() -> RecorderCheckpoint:
    ends = (StreamEnd(stream_id=stream_id(STREAM), last_seq=0, mmr_root=bytes(32)),)
    return RecorderCheckpoint(
        hub_id=h(b"hub"), hub_public=h(b"key"), profile_id=h(b"profile"), created_at=1,
        log_root=log_root(ends), ends=ends, names=(STREAM,), checkpoints=(),
    )  # fmt: skip


def a_descriptor() -> Descriptor:
    value = {
        "scope": [STREAM], "filter": {}, "projection": ["origin", "payload.number"],
        "evidence": {"mode": "none"},
    }  # fmt: skip
    return normalise(value, query_id_if_missing="q-1")


class Job:
    """A scheduler whose job leaves what a test says."""

    def __init__(self, leave: Callable[[Path], None]) -> None:
        self._leave = leave

    def run(self, work: SparkWork, is_over: Callable[[], bool]) -> None:
        assert not is_over()
        assert work.descriptor.read_bytes() == a_descriptor().encode()
        assert work.checkpoint.read_bytes() == a_checkpoint().encode()
        if not work.out.exists():
            work.out.mkdir()
            self._leave(work.out)


def leave(out: Path, rows: list[dict[str, Any]], **changes: Any) -> None:
    (out / "rows.jsonl").write_bytes(b"".join(canonical_json.encode(row) + b"\n" for row in rows))
    hashed = rows_hash(ROWS)
    searched = {"stream": STREAM, "from_seq": 1, "to_seq": 0, "mmr_root": "00" * 32, "unread": 0}
    parts = {
        "rows_hash": hashed.rows_hash, "rows_chain": hashed.chain, "row_count": hashed.row_count,
        "event_count": 5, "evidence_hash": "ab" * 32, "searched": [searched], **changes,
    }  # fmt: skip
    (out / "digest-parts.json").write_text(json.dumps(parts))
    (out / "witnesses.cborseq").write_bytes(b"")


def engine(tmp_path: Path, job: Job) -> SparkEngine:
    (tmp_path / "rows").mkdir()
    return SparkEngine(job, tmp_path / "spark", tmp_path / "rows", lambda: 7_000)


def test_what_a_job_leaves_becomes_a_result(tmp_path: Path) -> None:
    result = engine(tmp_path, Job(lambda out: leave(out, ROWS)))
    digest = result.run(a_descriptor(), RESULT_ID, a_checkpoint())
    assert (digest.rows_hash, digest.row_count) == rows_hash(ROWS)[:2]
    assert digest.evidence_hash == "ab" * 32
    assert list(RowsFile(tmp_path / "rows" / RESULT_ID).all()) == ROWS


@pytest.mark.parametrize(
    "rows", [ROWS[:-1], ROWS[::-1], [*ROWS, ROWS[0]], [{"origin": "b"}, *ROWS[1:]]]
)
def test_rows_that_are_not_those_that_were_hashed_are_no_result(
    tmp_path: Path, rows: list[dict[str, Any]]
) -> None:
    result = engine(tmp_path, Job(lambda out: leave(out, rows)))
    with pytest.raises(Untrusted, match="the rows of Spark: expected hash"):
        result.run(a_descriptor(), RESULT_ID, a_checkpoint())
    assert list((tmp_path / "rows").iterdir()) == []


def test_a_job_that_leaves_nothing_has_failed(tmp_path: Path) -> None:
    result = engine(tmp_path, Job(lambda _: None))
    with pytest.raises(JobFailed, match=r"digest-parts\.json"):
        result.run(a_descriptor(), RESULT_ID, a_checkpoint())


def test_a_job_that_was_begun_before_speaks_up_to_the_checkpoint_it_was_given(
    tmp_path: Path,
) -> None:
    result = engine(tmp_path, Job(lambda out: leave(out, ROWS)))
    first = result.run(a_descriptor(), RESULT_ID, a_checkpoint())
    again = result.run(a_descriptor(), RESULT_ID, replace(a_checkpoint(), created_at=9))
    assert again == first
