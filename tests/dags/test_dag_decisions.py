"""What people have said, and what of it counts: an import lets in nothing that nobody decided."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import veen_imported as imported
from dag_zones import veen
from veen_alarm import Alarm
from veen_command import Answer
from veen_made import Nothing, keep

A, B = "a" * 64, "b" * 64


class Task:
    """What a task sees of those before it."""

    dag_id, run_id, task_id = "veen_import", "run-1", "import"

    def __init__(self, said: Mapping[str, Any]) -> None:
        self._said = said

    def xcom_pull(self, task_ids: str) -> Any:
        return self._said.get(task_ids)


def context(verified: list[str], *people: tuple[str, str]) -> dict[str, Any]:
    said: dict[str, Any] = {
        f"approve_{number}": {"id": name, "person": name, "decision": decision}
        for number, (name, decision) in enumerate(people, 1)
    }
    said["verify"] = {"made": [{"id": one, "state": "verified"} for one in verified]}
    said["carriers"] = [{"key": "k", "bags": ["/medium/agb0/bag"]}]
    return {"ti": Task(said), "run_id": "run-1", "params": {"medium": "/medium"}}


def row(name: str, state: str) -> dict[str, Any]:
    return {
        "bundle_id": name, "state": state, "name": "bag", "stream": "record/app/http",
        "from_seq": 1, "to_seq": 2, "imported": 2, "told": None, "reason": None, "bags": ["bag"],
    }  # fmt: skip


@pytest.fixture(autouse=True)
def zone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    veen("zone", "init", "--directory", str(tmp_path / "z1"), "--name", "z1", "--role", "online")
    file = tmp_path / "z2" / "veen.toml"
    where = ["--directory", str(file.parent), "--trust", str(tmp_path / "z1" / "handover")]
    veen("zone", "init", *where, "--name", "z2", "--role", "offline")
    text = file.read_text().replace('people = ["operator"]', "needed = 2")
    file.write_text(text)
    monkeypatch.setenv("VEEN_ZONE", str(file))
    return file


def only(words: Any) -> list[str]:
    return [word for before, word in itertools.pairwise(words) if before == "--only"]


def test_two_people_let_in_what_they_were_asked_about_and_the_bags_that_were_verified() -> None:
    words = imported.import_words(context([A], ("ada", "Approve"), ("bob", "Approve")))
    assert only(words) == [A]
    assert words[words.index("--operator") + 1] == "ada, bob"
    assert words[words.index("--medium") + 1] == "/medium/agb0/bag"


@pytest.mark.parametrize(
    "people",
    [
        pytest.param([], id="nobody"),
        pytest.param([("ada", "Approve")], id="too few"),
        pytest.param([("ada", "Approve"), ("ada", "Approve")], id="one person twice"),
    ],
)
def test_too_few_people_let_nothing_in(people: list[tuple[str, str]]) -> None:
    with pytest.raises(Alarm, match="nothing goes in"):
        imported.import_words(context([A], *people))


def test_one_rejection_lets_nothing_in() -> None:
    words = imported.import_words(context([A], ("ada", "Reject")))
    assert only(words) == ["none"]
    assert words[words.index("--reject") + 1] == A


def test_where_nothing_is_to_be_decided_nothing_goes_in() -> None:
    assert only(imported.import_words(context([]))) == ["none"]


def test_where_no_carrier_came_the_run_ends_quietly() -> None:
    now = context([])
    now["ti"] = Task({})
    with pytest.raises(Nothing, match="no carrier came"):
        imported.import_words(now)


def test_a_bundle_that_came_meanwhile_is_asked_about_and_not_let_in_by_the_next_run() -> None:
    now = context([A], ("ada", "Approve"), ("bob", "Approve"))
    answer = Answer(12, {"carriers": [row(A, "waiting"), row(B, "blocked")]})
    for one in imported.let_in(answer, now):
        keep(imported.zone(), one, now)
    later = context([])
    assert only(imported.import_words(later)) == [A]
    seen = imported.found_valid(Answer(0, {"carriers": [row(A, ""), row(B, "")]}), later)
    assert [(one.id, one.state) for one in seen] == [(B, "verified")]


def test_who_let_a_bundle_in_is_not_forgotten_when_it_goes_in_later() -> None:
    now = context([A], ("ada", "Approve"), ("bob", "Approve"))
    for one in imported.let_in(Answer(8, {"carriers": [row(A, "waiting")]}), now):
        keep(imported.zone(), one, now)
    (made,) = imported.let_in(Answer(0, {"carriers": [row(A, "imported")]}), context([]))
    assert made.summary["decided_by"] == ["ada: Approve", "bob: Approve"]
