"""What people have said, and what of it counts: an import lets in nothing that nobody decided."""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from veen_airflow import approval as questions
from veen_airflow import imports as imported
from veen_airflow.alerts import Alarm
from veen_airflow.approval import ApprovalQuestion, ApprovalTask, Decision, Trace, compose, decide
from veen_airflow.artefacts import NothingToDo, write_artefact
from veen_airflow.commands import CommandAnswer
from veen_airflow.results import read_run_file, write_run_file
from veen_airflow.zone import zone as this_zone

from support.dags.dag_zones import veen

A, B = "a" * 64, "b" * 64
QUESTION = ApprovalQuestion((A,), "the text", 0)


class Task:
    """A task that knows its run; its XCom is whatever an attacker wrote there."""

    dag_id, run_id, task_id = "veen_import", "run-1", "import"

    def xcom_pull(self, task_ids: str) -> Any:
        raise AssertionError(f"XCom of {task_ids} was read")


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("zones")
    veen("zone", "init", "--directory", str(folder / "z1"), "--name", "z1", "--role", "online")
    result = folder / "z2" / "veen.toml"
    where = ["--directory", str(result.parent), "--trust", str(folder / "z1" / "handover")]
    veen("zone", "init", *where, "--name", "z2", "--role", "offline")
    result.write_text(result.read_text().replace('people = ["operator"]', "needed = 2"))
    return result


@pytest.fixture(autouse=True)
def zone(file: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The zone without anything of an earlier run."""
    monkeypatch.setenv("VEEN_ZONE", str(file))
    yield
    for name in ("runs", "artefacts"):
        shutil.rmtree(file.parent / name, ignore_errors=True)


def context(run: str = "run-1") -> dict[str, Any]:
    return {"ti": Task(), "run_id": run, "params": {}, "dag": SimpleNamespace(dag_id="veen_import")}


def row(name: str, state: str = "", **more: Any) -> dict[str, Any]:
    return {
        "bundle_id": name, "state": state, "name": "bag", "stream": "record/app/http",
        "from_seq": 1, "to_seq": 2, "imported": 2, "detail": None, "reason": None, "age_sec": 0,
        "bags": [f"/medium/agb0/{name}"], **more,
    }  # fmt: skip


def verified(*rows: dict[str, Any], run: str = "run-1") -> dict[str, Any]:
    """A run of which ``verify`` is over."""
    now = context(run)
    came = [{"key": row["bundle_id"], "bags": row["bags"]} for row in rows]
    write_run_file(now, "carriers", came)
    for artefact in imported.verified_artefacts(CommandAnswer(0, {"carriers": list(rows)}), now):
        write_artefact(this_zone(), artefact, now)
    return now


def answered(*people: tuple[str, str], needed: int = 2) -> Any:
    """As if Airflow's record and the notes of the tasks agreed that these people answered."""
    tasks = [
        ApprovalTask(f"approve_{n}", "success", f"ti-{n}", QUESTION.body, name, name, decision)
        for n, (name, decision) in enumerate(people, 1)
    ]
    noted = [
        Trace(task.ti_id, name, name, answer)
        for task, (name, answer) in zip(tasks, people, strict=True)
    ]
    left: list[Trace | None] = [*noted, *[None] * (needed - len(noted))]
    return {task.task_id: task for task in tasks}, left


def judged(records: Any, noted: Any, allowed: Sequence[str] = ()) -> Decision:
    return decide(QUESTION, records, noted, allowed)


def named(words: Sequence[str], option: str) -> list[str]:
    return [word for before, word in itertools.pairwise(words) if before == option]


def test_two_people_let_in_what_they_were_asked_about_and_the_bags_that_were_verified() -> None:
    artefacts = judged(*answered(("ada", "Approve"), ("bob", "Approve")))
    assert artefacts == Decision(people=("ada", "bob"))
    words = imported.decided_argv(verified(row(A)), artefacts)
    assert named(words, "--only") == [A]
    assert named(words, "--operator") == ["ada, bob"]
    assert named(words, "--medium") == [f"/medium/agb0/{A}"]


@pytest.mark.parametrize(
    "people",
    [
        pytest.param([], id="nobody"),
        pytest.param([("ada", "Approve")], id="too few"),
        pytest.param([("ada", "Approve"), ("ada", "Approve")], id="one person twice"),
    ],
)
def test_too_few_people_let_nothing_in(people: list[tuple[str, str]]) -> None:
    artefacts = judged(*answered(*people))
    assert artefacts.refused
    now = verified(row(A))
    words = imported.decided_argv(now, artefacts)
    assert named(words, "--only") == ["none"]
    assert named(words, "--unapproved") == [A]
    assert artefacts.refused in named(words, "--reason")[0]
    with pytest.raises(Alarm, match="nothing was imported"):
        imported.let_in(CommandAnswer(6, {"carriers": []}), now)
    assert not imported.seen(A).exists()


def test_h05_what_does_not_agree_with_airflows_record_is_refused() -> None:
    records, noted = answered(("ada", "Approve"), ("bob", "Approve"))
    first = records["approve_1"]

    def refused(changed: ApprovalTask, traces: Any = noted, allowed: Sequence[str] = ()) -> str:
        return judged(records | {"approve_1": changed}, traces, allowed).refused

    unanswered = replace(first, person_id=None, person=None, decision=None)
    assert "state was set by hand" in refused(unanswered)
    assert "state was set by hand" in refused(ApprovalTask("approve_1", "success", "ti-1"))
    assert "its state is skipped" in refused(ApprovalTask("approve_1", "skipped", "ti-1"))
    assert "did not end by its answer" in refused(first, [None, noted[1]])
    assert "did not end by its answer" in refused(replace(first, ti_id="of another try"))
    assert "Airflow's record" in refused(replace(first, decision="Reject"))
    assert "Airflow's record" in refused(replace(first, person_id="eve"))
    assert "showed another text" in refused(replace(first, body="nothing to see"))
    assert "not among the people" in refused(first, allowed=["bob"])
    assert not refused(first, allowed=["ada", "bob"])


def test_one_rejection_lets_nothing_in() -> None:
    artefacts = judged(*answered(("ada", "Reject")))
    assert artefacts == Decision(people=("ada",), is_rejected=True)
    words = imported.decided_argv(verified(row(A)), artefacts)
    assert named(words, "--only") == ["none"]
    assert named(words, "--reject") == [A]


def test_where_nothing_is_to_be_decided_nothing_goes_in_and_nobody_is_asked_for() -> None:
    now = verified(row(A, reason="it is not signed"))
    assert named(imported.import_argv(now), "--only") == ["none"]


def test_where_no_carrier_came_the_run_ends_quietly() -> None:
    with pytest.raises(NothingToDo, match="no carrier arrived"):
        imported.import_argv(context())


def test_a_bundle_that_came_meanwhile_is_asked_about_and_not_let_in_by_the_next_run() -> None:
    now = verified(row(A))
    imported.decided_argv(now, Decision(people=("ada", "bob")))
    answer = CommandAnswer(12, {"carriers": [row(A, "waiting"), row(B, "blocked")]})
    for artefact in imported.let_in(answer, now):
        write_artefact(this_zone(), artefact, now)
    later = verified(row(A), row(B), run="run-2")
    assert imported.asked_about(later) == (B,)
    words = imported.decided_argv(later, Decision(refused="nobody answered"))
    assert named(words, "--only") == [A]


def test_who_let_a_bundle_in_is_not_forgotten_when_it_goes_in_later() -> None:
    now = verified(row(A))
    imported.decided_argv(now, Decision(people=("ada", "bob")))
    for artefact in imported.let_in(CommandAnswer(8, {"carriers": [row(A, "waiting")]}), now):
        write_artefact(this_zone(), artefact, now)
    later = verified(row(A), run="run-2")
    imported.decided_argv(later, Decision())
    (artefact,) = imported.let_in(CommandAnswer(0, {"carriers": [row(A, "imported")]}), later)
    assert artefact.summary["decided_by"] == ["ada: Approve", "bob: Approve"]


def test_h06_junk_does_not_push_a_bundle_out_and_refused_carriers_are_a_count_at_the_end() -> None:
    junk = [row(f"{n:064x}", reason="not signed " * 50, stream="x" * 200) for n in range(300)]
    now = verified(*junk, row(B), row(A, stream="record/app/a|b`<b>"))
    assert imported.asked_about(now) == (A, B)
    body = imported.description(now)
    head, rows = body.split("|---:|:---|:---|:---|---:|---:|\n")
    assert head.startswith("**2 bundles, 4 events.**")
    assert rows.splitlines()[1] == f"| 2 | `{B}` | record/app/http | 1 to 2 | 2 | 0 d |"
    assert f"| 1 | `{A}` | record/app/a(U+007C)b(U+0060)(U+003C)b(U+003E) | 1 to 2 " in rows
    assert body.endswith("Refused carriers: 300. The log of the task `verify` names them.\n")
    assert len(body) < 1_000


def test_h06_what_does_not_fit_is_not_approved_and_the_next_run_asks_about_it() -> None:
    everything = [row(f"{n:064x}", from_seq=n, to_seq=n) for n in range(1, 251)]
    now = verified(*everything)
    shown = imported.asked_about(now)
    assert shown == tuple(item["bundle_id"] for item in everything[:100])
    body = imported.description(now)
    assert "150 more bundles do not fit here: the next run asks about them." in body
    assert [item for item in shown if item not in body] == []
    words = imported.decided_argv(now, Decision(people=("ada", "bob")))
    assert named(words, "--only") == list(shown)
    assert named(words, "--medium") == [item["bags"][0] for item in everything[:100]]
    imported.let_in(CommandAnswer(0, {"carriers": [row(item, "imported") for item in shown]}), now)
    assert imported.seen(shown[0]).exists()
    assert not imported.seen(everything[100]["bundle_id"]).exists()
    assert imported.remaining(now) == ()
    with pytest.raises(NothingToDo):
        imported.remaining(verified(row(A), run="run-2"))


def test_h06_a_row_that_is_longer_than_a_question_is_shown_whole_and_alone() -> None:
    long = [row(item, stream="s" * questions.MOST_CHARS) for item in (A, B)]
    result = compose(long, [], 0)
    assert (result.bundles, result.later) == ((A,), 1)
    assert "s" * questions.MOST_CHARS in result.body


def test_h35_nobody_is_asked_about_a_bundle_that_cannot_go_in() -> None:
    why = "record/app/http is in no [[streams]] of the settings"
    now = verified(row(A, obstacle=why, code="UNMAPPED"), row(B, obstacle=None))
    assert imported.asked_about(now) == (B,)
    words = imported.decided_argv(now, Decision(people=("ada", "bob")))
    assert named(words, "--medium") == [f"/medium/agb0/{B}"]
    imported.let_in(CommandAnswer(0, {"carriers": [row(B, "imported")]}), now)
    assert not imported.seen(A).exists()
    assert [item["state"] for item in read_run_file(now, "verified")] == ["obstructed", "verified"]
    with pytest.raises(Alarm, match="1 valid bundles cannot be imported: aaaaaaaaaaaaaaaa"):
        imported.judged(now)


def test_h05_no_task_reads_what_others_may_write() -> None:
    folder = Path(imported.__file__).parent
    assert [path.name for path in folder.glob("*.py") if "xcom_pull" in path.read_text()] == []
