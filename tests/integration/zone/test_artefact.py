"""What a run made, as it is kept: one file for one thing, listed without reading all."""

from __future__ import annotations

import json
import os
import re
from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pytest

from zone.artefacts import (
    FOLDER,
    OVER,
    Artefact,
    BadArtefact,
    Seen,
    newest,
    unresolved_alarms,
    write,
)


def an_artefact(**changes: Any) -> Artefact:
    usual: dict[str, Any] = {
        "kind": "export", "id": "ab" * 32, "made_at": 1_794_000_000_000, "dag_id": "veen_export",
        "run_id": "manual__2026-11-16T10:00:00+00:00", "task_id": "export", "state": "written",
        "summary": {"events": 12}, "path": "/media/usb/ab",
    }  # fmt: skip
    return Artefact(**(usual | changes))


@pytest.mark.parametrize(
    ("changes", "detail"),
    [
        ({"kind": "thing"}, "kind 'thing'"),
        ({"id": "../x"}, "id '../x'"),
        ({"id": ""}, "id ''"),
        ({"id": ".x"}, "id '.x'"),
        ({"id": "a/b"}, "id 'a/b'"),
        ({"id": "x" * 182}, "id 'xxx"),
        ({"made_at": -1}, "made_at -1"),
        ({"made_at": 10**20}, "made_at 1000"),
    ],
)
def test_refuses(changes: dict[str, Any], detail: str) -> None:
    with pytest.raises(BadArtefact, match=re.escape(detail)):
        an_artefact(**changes)


@pytest.mark.parametrize(
    "damage",
    [
        lambda item: item.pop("state"),
        lambda item: item.update(more=1),
        lambda item: item.update(made_at="1"),
        lambda item: item.update(made_at=5),
        lambda item: item.update(id="other"),
        lambda item: item.update(summary=[]),
        lambda item: item.update(path=3),
        lambda item: item.update(seen="run"),
        lambda item: item.update(seen={"dag_id": "veen_export"}),
    ],
)
def test_refuses_a_file_that_is_none(tmp_path: Path, damage: Any) -> None:
    file = write(tmp_path, an_artefact())
    document = json.loads(file.read_text())
    damage(document)
    file.write_text(json.dumps(document))
    with pytest.raises(BadArtefact, match=re.escape(str(file))):
        newest(tmp_path, "export", 1)


def test_refuses_a_file_that_is_no_json(tmp_path: Path) -> None:
    write(tmp_path, an_artefact()).write_text("{")
    with pytest.raises(BadArtefact, match="expected JSON"):
        newest(tmp_path, "export", 1)


def test_comes_back_as_it_was_written(tmp_path: Path) -> None:
    there = an_artefact(path=None)
    file = write(tmp_path, there)
    assert newest(tmp_path, "export", 9) == (there,)
    assert file == tmp_path / "artefacts" / "export" / f"00000001794000000000-{'ab' * 32}.json"


def test_the_same_thing_again_is_the_same_file_with_the_newer_state(tmp_path: Path) -> None:
    first = write(tmp_path, an_artefact())
    second = write(tmp_path, an_artefact(made_at=1_795_000_000_000, state="carried"))
    assert first == second
    (result,) = newest(tmp_path, "export", 9)
    assert (result.made_at, result.state) == (1_794_000_000_000, "carried")


def test_who_looks_again_never_becomes_the_maker(tmp_path: Path) -> None:
    write(tmp_path, an_artefact(run_id="made"))
    for number in (1, 2):
        write(tmp_path, an_artefact(run_id=f"looked-{number}", dag_id="d", made_at=10**13 + number))
    (result,) = newest(tmp_path, "export", 9)
    assert (result.dag_id, result.run_id, result.task_id) == ("veen_export", "made", "export")
    assert result.seen == Seen(dag_id="d", run_id="looked-2", seen_at=10**13 + 2)


def test_the_maker_that_tells_again_is_nobody_else(tmp_path: Path) -> None:
    write(tmp_path, an_artefact())
    write(tmp_path, an_artefact(state="intact", task_id="check"))
    (result,) = newest(tmp_path, "export", 9)
    assert (result.task_id, result.state, result.seen) == ("export", "intact", None)


@pytest.mark.parametrize(
    ("before", "detail", "after"),
    [
        ("signed", "verified", "verified"),
        ("verified", "signed", "verified"),
        ("verified", "pushed", "verified"),
        ("verified", "damaged", "damaged"),
        ("damaged", "verified", "verified"),
        ("pushed", "signed", "signed"),
    ],
)
def test_what_was_verified_is_not_merely_signed_again(
    tmp_path: Path, before: str, detail: str, after: str
) -> None:
    write(tmp_path, an_artefact(state=before))
    write(tmp_path, an_artefact(state=detail, run_id="later"))
    assert [item.state for item in newest(tmp_path, "export", 9)] == [after]


def test_an_alarm_stands_until_it_is_over_and_again_when_it_is_raised_again(
    tmp_path: Path,
) -> None:
    alarm = an_artefact(kind="alarm", id="late", state="raised")
    seen = []
    for state in ("raised", "raised", OVER, OVER, "raised"):
        write(tmp_path, replace(alarm, state=state))
        seen.append([item.state for item in unresolved_alarms(tmp_path, 9)])
    assert seen == [["raised"], ["raised"], [], [], ["raised"]]


def test_an_old_alarm_that_stands_is_found_behind_many_that_are_over(tmp_path: Path) -> None:
    write(tmp_path, an_artefact(kind="alarm", id="old", state="raised", made_at=1))
    for number in range(30):
        detail = an_artefact(kind="alarm", id=f"new-{number}", made_at=2 + number, state="raised")
        write(tmp_path, detail)
        write(tmp_path, replace(detail, state=OVER)).write_text("read by nobody")
    assert [item.id for item in unresolved_alarms(tmp_path, 2)] == ["old"]


def test_an_alarm_whose_writing_was_cut_off_stands_in_nobodys_way(tmp_path: Path) -> None:
    write(tmp_path, an_artefact(kind="alarm", id="a", state="raised")).unlink()
    assert unresolved_alarms(tmp_path, 9) == ()


def test_marks_of_an_earlier_version_are_read_and_moved(tmp_path: Path) -> None:
    write(tmp_path, an_artefact(kind="alarm", id="old", state="raised"))
    marks = tmp_path / FOLDER / "alarm" / "unresolved"
    earlier = marks.rename(marks.with_name("standing"))
    assert [item.id for item in unresolved_alarms(tmp_path, 9)] == ["old"]
    write(tmp_path, an_artefact(kind="alarm", id="new", state="raised"))
    assert not earlier.exists()
    assert {item.id for item in unresolved_alarms(tmp_path, 9)} == {"old", "new"}


def test_no_alarm_is_missed_while_the_marks_of_an_earlier_version_are_moved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, an_artefact(kind="alarm", id="old", state="raised"))
    marks = tmp_path / FOLDER / "alarm" / "unresolved"
    earlier, listdir = marks.rename(marks.with_name("standing")), os.listdir

    def listed_before_the_move(path: Path) -> list[str]:
        try:
            return listdir(path)
        finally:
            if earlier.exists():
                earlier.rename(marks)

    monkeypatch.setattr(os, "listdir", listed_before_the_move)
    assert [item.id for item in unresolved_alarms(tmp_path, 9)] == ["old"]


def test_a_resolved_alarm_leaves_no_mark_of_an_earlier_version(tmp_path: Path) -> None:
    """A run of the earlier version may have made its directory again."""
    alarm = an_artefact(kind="alarm", id="a", state="raised")
    name = write(tmp_path, alarm).stem
    earlier = tmp_path / FOLDER / "alarm" / "standing"
    earlier.mkdir()
    (earlier / name).touch()
    write(tmp_path, replace(alarm, state=OVER))
    assert list(earlier.iterdir()) == []


def test_an_id_that_ends_like_another_is_another(tmp_path: Path) -> None:
    write(tmp_path, an_artefact(id="a-b"))
    write(tmp_path, an_artefact(id="b", made_at=1))
    assert [item.id for item in newest(tmp_path, "export", 9)] == ["a-b", "b"]


def test_pages_go_back_in_time_and_miss_nothing(tmp_path: Path) -> None:
    artefacts = [an_artefact(id=f"{n:03d}", made_at=1_000 + n // 3) for n in range(20)]
    for item in artefacts:
        write(tmp_path, item)
    pages: list[str] = []
    page = newest(tmp_path, "export", 6)
    while page:
        pages += [item.id for item in page]
        page = newest(tmp_path, "export", 6, before=page[-1].name)
    assert pages == [item.id for item in reversed(artefacts)]


def test_what_is_not_returned_is_not_read(tmp_path: Path) -> None:
    write(tmp_path, an_artefact(id="old", made_at=1)).write_text("damaged")
    write(tmp_path, an_artefact(id="new", made_at=2))
    assert [item.id for item in newest(tmp_path, "export", 1)] == ["new"]


def test_a_zone_that_made_nothing_has_none(tmp_path: Path) -> None:
    assert newest(tmp_path, "audit", 5) == ()


def _write_late(folder: Path, made_at: int) -> None:
    write(folder, replace(an_artefact(), made_at=made_at))


def test_two_runs_that_tell_of_one_thing_at_once_make_one_file(tmp_path: Path) -> None:
    with get_context("spawn").Pool(2) as pool:
        pool.starmap(_write_late, [(tmp_path, 1_000 + n) for n in range(20)])
    assert len(newest(tmp_path, "export", 99)) == 1
