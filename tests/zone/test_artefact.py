"""What a run made, as it is kept: one file for one thing, listed without reading all."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pytest

from recorder.artefact import Artefact, BadArtefact, newest, write


def an_artefact(**changes: Any) -> Artefact:
    usual: dict[str, Any] = {
        "kind": "export", "id": "ab" * 32, "made_at": 1_794_000_000_000, "dag_id": "veen_export",
        "run_id": "manual__2026-11-16T10:00:00+00:00", "task_id": "export", "state": "written",
        "summary": {"events": 12}, "path": "/media/usb/ab",
    }  # fmt: skip
    return Artefact(**(usual | changes))


@pytest.mark.parametrize(
    ("changes", "told"),
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
def test_refuses(changes: dict[str, Any], told: str) -> None:
    with pytest.raises(BadArtefact, match=re.escape(told)):
        an_artefact(**changes)


@pytest.mark.parametrize(
    "damage",
    [
        lambda found: found.pop("state"),
        lambda found: found.update(more=1),
        lambda found: found.update(made_at="1"),
        lambda found: found.update(made_at=5),
        lambda found: found.update(id="other"),
        lambda found: found.update(summary=[]),
        lambda found: found.update(path=3),
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
    with pytest.raises(BadArtefact, match="not JSON"):
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
    (found,) = newest(tmp_path, "export", 9)
    assert (found.made_at, found.state) == (1_794_000_000_000, "carried")


def test_an_id_that_ends_like_another_is_another(tmp_path: Path) -> None:
    write(tmp_path, an_artefact(id="a-b"))
    write(tmp_path, an_artefact(id="b", made_at=1))
    assert [one.id for one in newest(tmp_path, "export", 9)] == ["a-b", "b"]


def test_pages_go_back_in_time_and_miss_nothing(tmp_path: Path) -> None:
    made = [an_artefact(id=f"{n:03d}", made_at=1_000 + n // 3) for n in range(20)]
    for one in made:
        write(tmp_path, one)
    pages: list[str] = []
    page = newest(tmp_path, "export", 6)
    while page:
        pages += [one.id for one in page]
        page = newest(tmp_path, "export", 6, before=page[-1].name)
    assert pages == [one.id for one in reversed(made)]


def test_what_is_not_returned_is_not_read(tmp_path: Path) -> None:
    write(tmp_path, an_artefact(id="old", made_at=1)).write_text("damaged")
    write(tmp_path, an_artefact(id="new", made_at=2))
    assert [one.id for one in newest(tmp_path, "export", 1)] == ["new"]


def test_a_zone_that_made_nothing_has_none(tmp_path: Path) -> None:
    assert newest(tmp_path, "audit", 5) == ()


def _write_late(folder: Path, made_at: int) -> None:
    write(folder, replace(an_artefact(), made_at=made_at))


def test_two_runs_that_tell_of_one_thing_at_once_make_one_file(tmp_path: Path) -> None:
    with get_context("spawn").Pool(2) as pool:
        pool.starmap(_write_late, [(tmp_path, 1_000 + n) for n in range(20)])
    assert len(newest(tmp_path, "export", 99)) == 1
