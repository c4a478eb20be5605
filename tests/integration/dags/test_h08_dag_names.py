"""H08 in the DAG: carriers with any name pass through its tasks, and each is judged by itself."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from veen_airflow import imports
from veen_airflow import imports as imported
from veen_airflow.artefacts import NothingToDo, write_artefact
from veen_airflow.commands import CommandAnswer
from veen_airflow.results import write_run_file
from veen_airflow.zone import run_directory, write_once

from bridge import settings as bridge_settings
from bridge.carrier.format import CarrierLedger, Preset
from bridge.carrier.writer import Content, stage
from bridge.trust import pin_exporter
from support.bridge import bridge_world
from support.dags.dag_steps import context
from support.dags.dag_zones import veen
from veen.digest import h
from zone.config import load

ODD = (os.fsencode("\u00e9"), b"\xff\xfe", b"x" * 255, b"y" * 174)


@pytest.fixture
def medium(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A medium with a finished directory under each name; a link and a plain one beside them."""
    veen("zone", "init", "--directory", str(tmp_path / "z1"), "--name", "z1", "--role", "online")
    where = ["--directory", str(tmp_path / "z2"), "--trust", str(tmp_path / "z1" / "handover")]
    veen("zone", "init", *where, "--name", "z2", "--role", "offline")
    monkeypatch.setenv("VEEN_ZONE", str(tmp_path / "z2" / "veen.toml"))
    path = tmp_path / "medium"
    for raw in (*ODD, b"plain"):
        bag = path / "agb0" / os.fsdecode(raw)
        bag.mkdir(parents=True)
        (bag / "carrier.sig").write_bytes(bytes(105))
    (path / "agb0" / "link").symlink_to("/")
    return path


def test_h08_no_name_on_a_medium_fails_the_tasks_of_an_import(medium: Path) -> None:
    came = imports.undecided(context(medium=str(medium)))
    assert len(came) == len(ODD) + 2
    # Airflow keeps it as JSON in UTF-8.
    assert json.dumps(came, ensure_ascii=False).encode("ascii")
    detail: dict[str, Any] = context("verify", medium=str(medium))
    write_run_file(detail, "carriers", came)
    words = imported.verify_argv(detail)
    command = [sys.executable, "-m", "cli.main", *words, "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 3, done.stderr
    rows = json.loads(done.stdout)
    artefacts = imported.verified_artefacts(CommandAnswer(3, rows), detail)
    assert len({artefact.id for artefact in artefacts}) == len(came)
    assert {artefact.state for artefact in artefacts} == {"refused"}
    zone = load(Path(os.environ["VEEN_ZONE"]))
    for artefact in artefacts:
        write_artefact(zone, artefact, detail)
    words = imported.import_argv(context("import", medium=str(medium)))
    assert all(word.isascii() for word in words)


def size_of(taken: list[dict[str, Any]]) -> int:
    return sum(len(bag) for item in taken for bag in item["bags"])


def test_h06_junk_beside_a_carrier_does_not_overflow_the_command(medium: Path) -> None:
    """Directories that anybody can make, more than the words of a command hold."""
    junk = [{"key": f"k{n}", "bags": [f"{medium}/agb0/{n:0200d}"]} for n in range(4_000)]
    assert size_of(junk) > imports.MAX_ARGV_BYTES
    taken = imports.batch(junk)
    assert 0 < len(taken) < len(junk)
    assert size_of(taken) <= imports.MAX_ARGV_BYTES
    signed = signed_by_trusted(medium)
    came = imports.undecided(context(medium=str(medium)))
    assert [item["bags"] for item in came].count([signed]) == 1
    assert imports.batch([*junk, *came])[0]["bags"] == [signed]
    copies = [{"key": "k", "bags": [f"/m/agb0/{n:090d}" for n in range(6_000)] + [signed]}]
    assert size_of(copies) > imports.MAX_ARGV_BYTES
    (stored,) = imports.batch(copies)
    assert stored["bags"][0] == signed
    assert 1 < len(stored["bags"]) < 6_000
    assert size_of([stored]) <= imports.MAX_ARGV_BYTES


def signed_by_trusted(medium: Path) -> str:
    """A carrier on the medium whose exporter the zone trusts."""
    trust = bridge_settings.load(Path(os.environ["VEEN_ZONE"])).trust
    pin_exporter(trust, "world", bridge_world.EXPORTER.public)
    raw = bridge_world.World().grow(3).bundle(1, 3, 3)
    (medium / "content").write_bytes(raw)
    ledger = CarrierLedger(bridge_id=h(b"bridge")).with_bundle(bridge_world.parts(raw)[0])
    content = Content(file=medium / "content", ledger=ledger)
    before = set((medium / "agb0").iterdir())
    stage(content, Preset.ANY.packing(), bridge_world.EXPORTER, medium / "agb0", None)
    (bag,) = set((medium / "agb0").iterdir()) - before
    return str(bag)


def test_h06_another_run_goes_on_with_what_this_one_did_not_take_up(medium: Path) -> None:
    detail: dict[str, Any] = context("rest", medium=str(medium))
    came = imports.undecided(detail)
    write_run_file(detail, "carriers", came[:2])
    write_run_file(detail, imported.LEFT, len(came) - 2)
    with pytest.raises(NothingToDo):
        imported.remaining(detail)
    write_once(imports.seen(came[0]["key"]), b"{}")
    assert imported.remaining(detail) == ()


@pytest.mark.parametrize("run_id", [".", "..", "..."])
def test_h05_files_of_a_run_stay_in_a_directory_of_its_own(medium: Path, run_id: str) -> None:
    assert medium.is_dir()
    zone = load(Path(os.environ["VEEN_ZONE"]))
    result = run_directory(zone, context(run_id=run_id)).resolve()
    assert result.parent == (zone.folder / "runs" / "veen_any").resolve()
