"""H08: a name on a medium or in the inbox may be any bytes, and stops its own carrier alone."""

from __future__ import annotations

import json
import os
from contextvars import copy_context
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from bridge.carrier.directory import BagPath, carrier_name
from bridge.carrier.medium import carriers
from cli.main import app
from support.bridge import importing_zone
from veen.digest import h

ODD = {
    "letter": os.fsencode("\u00e9"),
    "bytes": b"\xff\xfe-carrier",
    "long": b"x" * 255,
    "lines": b"a\nb",
}


def named(folder: Path, raw: bytes) -> Path:
    return folder / os.fsdecode(raw)


def hashed(raw: bytes) -> str:
    return f"carrier-{h(raw).hex()}"


def veen(words: list[str]) -> Result:
    """In this process; whether it prints JSON does not outlive it."""
    return copy_context().run(CliRunner().invoke, app, words)


def bag_of(medium: Path) -> Path:
    (bag,) = medium.iterdir()
    return bag


@pytest.fixture
def medium(import_zone: Any) -> Path:
    """One sound carrier with an odd name, junk with each of the others, one sound plain one."""
    result: Path = import_zone.root / "stick"
    (result / "agb0").mkdir(parents=True)
    bag_of(import_zone.medium(1, 3)).rename(named(result / "agb0", ODD["letter"]))
    for item in ("bytes", "long", "lines"):
        bag = named(result / "agb0", ODD[item])
        bag.mkdir()
        (bag / "carrier.sig").write_bytes(bytes(105))
    plain = bag_of(import_zone.medium(4, 5))
    plain.rename(result / "agb0" / plain.name)
    return result


def test_h08_only_plain_names_of_moderate_length_are_kept() -> None:
    for plain in ("2f90aa-c41b07-17-0a", "bag_1.2", "A" * 128):
        assert carrier_name(plain) == plain
    for raw in (*ODD.values(), b".hidden", b"x" * 129, b"two words"):
        assert carrier_name(os.fsdecode(raw)) == hashed(raw)


def test_h08_each_carrier_of_a_medium_is_judged_by_itself(import_zone: Any, medium: Path) -> None:
    result = import_zone.run(medium)
    judged = {outcome.name for outcome in result.outcomes if outcome.state.value == "incomplete"}
    assert judged == {hashed(ODD[item]) for item in ("bytes", "long", "lines")}
    assert [outcome.state.value for outcome in result.outcomes].count("imported") == 2
    json.dumps([outcome.detail for outcome in result.outcomes]).encode()
    import_zone.check([1, 2, 3, 4, 5])


def test_h08_each_carrier_of_the_inbox_is_judged_by_itself(import_zone: Any, medium: Path) -> None:
    import_zone.import_dir.create()
    for bag in (medium / "agb0").iterdir():
        bag.rename(import_zone.import_dir.inbox / bag.name)
    assert sorted(import_zone.states()) == ["imported", "imported", *["incomplete"] * 3]
    assert import_zone.files("inbox") == sorted(
        hashed(ODD[item]) for item in ("bytes", "long", "lines")
    )
    # Once more, by the names that they have now.
    assert import_zone.states() == ["incomplete"] * 3
    import_zone.check([1, 2, 3, 4, 5])


def test_h08_the_command_shows_names_that_it_takes_back(import_zone: Any, medium: Path) -> None:
    trust = ["--trust", str(import_zone.root / "trust")]
    shown = veen(["bridge", "verify", str(medium), *trust, "--json"])
    assert shown.exit_code == 3, shown.output
    rows = {row["bags"][0]: row["verdict"] for row in json.loads(shown.stdout)["carriers"]}
    assert len(rows) == 5
    assert all(row.isascii() for row in rows)
    sound = str(medium / "agb0" / hashed(ODD["letter"]))
    assert rows[sound] == "valid"
    again = veen(["bridge", "verify", sound, *trust, "--json"])
    assert again.exit_code == 0, again.output
    listed = veen(["bridge", "inspect", str(medium), "--json"])
    assert listed.exit_code == 3, listed.output
    assert sum("refused" in item for item in json.loads(listed.stdout)["carriers"]) == 3
    # What people approved is imported by the same name.
    assert import_zone.states(Path(sound)) == ["imported"]


def test_h08_a_hash_stands_for_one_entry_of_its_folder(medium: Path) -> None:
    (result,) = (carrier for carrier in carriers([medium]) if carrier[0].name == "\u00e9")
    assert BagPath.of(Path(str(result[0]))) == result[0]
    missing = medium / "agb0" / hashed(b"nothing")
    assert BagPath.of(missing).path == missing


def test_h08_a_transcript_has_names_that_can_be_written(import_zone: Any, medium: Path) -> None:
    words = ["bridge", "verify", str(medium), "--trust", str(import_zone.root / "trust")]
    shown = veen([*words, "--transcript", str(import_zone.root / "transcript.txt")])
    assert shown.exit_code == 3, shown.output
    text = (import_zone.root / "transcript.txt").read_text("ascii")
    assert hashed(ODD["bytes"]) in text
    assert importing_zone.tree(medium)
