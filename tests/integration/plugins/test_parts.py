"""What the page shows of a zone's files; what is damaged, missing or hostile hides nothing else."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from veen_page_artefacts import OfRun, file_of, picture_of
from veen_page_bridge import receipt
from veen_page_log import CheckpointPair, streams
from veen_page_render import PageFrame, render
from veen_page_services import PageZoneUnset, opened

from bridge.carrier.directory import carrier_name
from recorder.index import tables
from recorder.index.tables import IndexGeneration
from support.plugins.page_zone import NOW
from support.recorder.anchor_documents import START, a_checkpoint

MARKUP = "<script>alert(1)</script><img src=x onerror=alert(2)>\"'&"


def spoil(database: Path, table: str) -> None:
    """Overwrite the first page of one table; the rest of the database is as it was."""
    with sqlite3.connect(database) as db:
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        expected = (
            "SELECT rootpage, (SELECT * FROM pragma_page_size) FROM sqlite_master WHERE name = ?"
        )
        number, size = db.execute(expected, (table,)).fetchone()
    db.close()
    with database.open("r+b") as file:
        file.seek((number - 1) * size)
        file.write(b"\xff" * size)


def test_a_process_without_a_zone_gets_an_error_that_says_so() -> None:
    with pytest.raises(PageZoneUnset, match="VEEN_ZONE is not set"):
        opened({})


def test_a_damaged_artefact_hides_its_own_list_only(make_page_zone: Callable[..., Any]) -> None:
    zone = make_page_zone()
    zone.keep(kind="checkpoint")
    zone.keep(kind="audit", id="a" * 64, state="whole")
    (file,) = (zone.folder / "artefacts" / "checkpoint").glob("*.json")
    file.write_text("{")
    html = zone.html()
    assert "This part cannot be shown" in html
    assert "expected JSON" in html
    assert "/veen/audit/" + "a" * 64 in html


def test_a_damaged_index_or_ledger_hides_its_own_part_only(
    make_page_zone: Callable[..., Any],
) -> None:
    zone = make_page_zone("offline")
    import_dir = zone.bundles(1)
    home = zone.place().recorder.index
    (home / "g-1").mkdir(parents=True)
    (home / "current").symlink_to("g-1")
    tables.create(IndexGeneration(home / "g-1"), zone.place().zone.hub_id)
    spoil(home / "g-1" / "index.sqlite", "checkpoints")
    spoil(import_dir.ledger, "bundles")
    zone.keep(kind="audit", id="a" * 64, state="whole")
    overview = zone.overview()
    assert overview.streams.known is None
    assert "veen recorder index rebuild" in overview.streams.trouble
    assert overview.importing.known is None
    assert "--rebuild-ledger" in overview.importing.trouble
    assert "/veen/audit/" + "a" * 64 in zone.html()


def test_a_checkpoint_that_the_hub_did_not_sign_is_shown_as_such(
    make_page_zone: Callable[..., Any],
) -> None:
    zone = make_page_zone()
    forged = replace(a_checkpoint(START), hub_sig=bytes(64))
    zone.sign(forged)
    known = zone.overview().checkpoints.known
    assert known.verdict.holds is False
    assert "not signed by its hub" in known.verdict.detail
    assert 'class="bad">recorder checkpoint' in zone.html()


def test_a_checkpoint_that_goes_back_is_shown_as_such(make_page_zone: Callable[..., Any]) -> None:
    zone = make_page_zone()
    zone.sign(a_checkpoint(START, (9, 1)), a_checkpoint(START + 60, (4, 1)))
    known = zone.overview().checkpoints.known
    assert known.verdict.holds is False
    assert "ends earlier now" in known.verdict.detail


def test_heads_rates_and_age_follow_from_the_checkpoints(
    make_page_zone: Callable[..., Any],
) -> None:
    zone = make_page_zone()
    zone.sign(a_checkpoint(START, (10, 0)), a_checkpoint(START + 300, (40, 5)))
    overview = zone.overview()
    rows = {row.name: row for row in overview.streams.known.rows}
    assert (rows["record/app/a"].head, rows["record/app/a"].per_minute) == (40, 6.0)
    assert (rows["record/app/b"].head, rows["record/app/b"].per_minute) == (5, 1.0)
    assert overview.checkpoints.known.verdict.holds is True
    assert "5 minutes ago" in zone.html(now=START + 600)


def test_streams_come_a_page_at_a_time(make_page_zone: Callable[..., Any]) -> None:
    zone = make_page_zone()
    pair = CheckpointPair(a_checkpoint(START, (3, 2)), None)
    usual: dict[str, Any] = {"now": NOW, "may_read": lambda _dag_id: True}
    whole = streams(zone.place(), pair, **usual)
    after = streams(zone.place(), pair, **usual, after="record/app/a")
    assert [row.name for row in whole.rows] == ["record/app/a", "record/app/b"]
    assert [row.name for row in after.rows] == ["record/app/b"]
    assert (whole.total, whole.next_after) == (2, None)


def test_what_comes_from_a_medium_is_text_and_never_markup(
    make_page_zone: Callable[..., Any],
) -> None:
    zone = make_page_zone("offline")
    import_dir = zone.bundles(2, "waiting", MARKUP)
    zone.quarantine(import_dir, "ab" * 32, MARKUP)
    zone.keep(kind="import", id="ab" * 32, state=MARKUP, summary={MARKUP: MARKUP}, run_id=MARKUP)
    zone.keep(kind="alarm", id="a", state="raised", summary={"what": MARKUP}, dag_id=MARKUP)
    html = zone.html()
    assert "<script>alert" not in html
    assert "<img src=x" not in html
    assert html.count("&lt;script&gt;alert(1)&lt;/script&gt;") >= 4


def test_the_pages_of_one_artefact_are_text_and_never_markup(
    make_page_zone: Callable[..., Any],
) -> None:
    item = make_page_zone().keep(
        run_id=MARKUP, state=MARKUP, summary={MARKUP: [MARKUP]}, path=MARKUP
    )
    seen = OfRun(made=(item,), looked_at=(item,))
    more = {"has_file": True, "has_picture": False, "receipt": MARKUP, "where": MARKUP}
    for html in (
        render("veen_page_artefact.html", PageFrame("", NOW), artefact=item, **more),
        render(
            "veen_page_run.html", PageFrame("", NOW), dag_id=MARKUP, run_id=MARKUP, artefacts=seen
        ),
        render("veen_page_refused.html", PageFrame("", NOW), code=404, detail=MARKUP, login=""),
    ):
        assert "<script>alert" not in html
        assert "onerror=alert(2)&gt;" in html


def test_what_one_may_not_see_is_left_out(make_page_zone: Callable[..., Any]) -> None:
    zone = make_page_zone()
    zone.keep(kind="checkpoint", dag_id="veen_checkpoint")
    zone.keep(kind="audit", id="a" * 64, dag_id="veen_audit")
    html = zone.html(may_read=lambda dag_id: dag_id == "veen_audit")
    assert "a" * 64 in html
    assert "c" * 64 not in html


@pytest.mark.parametrize("where", ["outside", "link", "folder", "missing"])
def test_gives_out_no_file_but_those_of_the_zone(
    make_page_zone: Callable[..., Any], tmp_path: Path, where: str
) -> None:
    zone = make_page_zone()
    (tmp_path / "secret").write_text("secret")
    (zone.folder / "link").symlink_to(tmp_path / "secret")
    paths = {
        "outside": "../secret",
        "link": str(zone.folder / "link"),
        "folder": str(zone.folder),
        "missing": str(zone.folder / "none"),
    }
    assert file_of(zone.folder, zone.keep(path=paths[where])) is None


@pytest.mark.parametrize(
    "name", ["secrets/airflow-passwords.json", "identities/admin", "veen.toml"]
)
def test_gives_out_no_secret_of_the_zone(make_page_zone: Callable[..., Any], name: str) -> None:
    zone = make_page_zone()
    assert (zone.folder / name).exists()
    assert file_of(zone.folder, zone.keep(path=str(zone.folder / name))) is None


def test_gives_out_reports_and_their_pictures(make_page_zone: Callable[..., Any]) -> None:
    zone = make_page_zone()
    folder = zone.folder / "reports" / "reconcile" / "r"
    folder.mkdir(parents=True)
    for name in ("report.json", "report.svg"):
        (folder / name).write_text("x")
    item = zone.keep(kind="reconcile", id="r", path=str(folder / "report.json"))
    assert file_of(zone.folder, item) == folder / "report.json"
    assert picture_of(zone.folder, item) == folder / "report.svg"
    assert 'src="/veen/reconcile/r/picture"' not in zone.html(), "an online zone has none"


def test_a_quarantined_carrier_has_its_reason_and_its_run(
    make_page_zone: Callable[..., Any],
) -> None:
    zone = make_page_zone("offline")
    import_dir = zone.bundles(1, "quarantined")
    zone.quarantine(import_dir, "ab" * 32, "event 7 is not what was signed")
    zone.quarantine(import_dir, "cd" * 32, "", at=NOW - 10)
    (import_dir.quarantine("cd" * 32) / "reason.json").unlink()
    zone.keep(kind="import", id="ab" * 32, dag_id="veen_import", run_id="r1", state="quarantined")
    html = zone.html()
    assert "event 7 is not what was signed" in html
    assert 'href="/dags/veen_import/runs/r1"' in html
    assert "expected a reason.json" in html
    assert html.index("ab" * 32) < html.index("cd" * 32), "the newest first"


def test_a_carrier_without_a_bundle_has_its_run_by_the_name_it_came_under(
    make_page_zone: Callable[..., Any],
) -> None:
    zone = make_page_zone("offline")
    zone.quarantine(zone.bundles(1), "ef" * 32, "cut short", received="7d3cf4 bag")
    assert "none is known" in zone.html()
    zone.keep(kind="import", id=carrier_name("7d3cf4 bag"), dag_id="veen_import", run_id="r2")
    assert zone.html().count('href="/dags/veen_import/runs/r2"') == 2, "in both lists"


def test_a_receipt_is_found_by_its_bundle_alone(make_page_zone: Callable[..., Any]) -> None:
    zone = make_page_zone("offline")
    import_dir = zone.bundles(1)
    (import_dir.receipts / f"{'ab' * 32}.txt").write_text("Words  alpha bravo")
    (zone.folder / "import" / "ledger.txt").write_text("no receipt")
    assert receipt(zone.place(), "ab" * 32) == "Words  alpha bravo"
    assert receipt(zone.place(), "../ledger") is None
    assert receipt(zone.place(), "cd" * 32) is None


def test_looking_at_a_zone_changes_nothing_in_it(make_page_zone: Callable[..., Any]) -> None:
    zone = make_page_zone("offline")
    import_dir = zone.bundles(3, "waiting", "events are missing")
    zone.quarantine(import_dir, "ab" * 32, "why")
    zone.anchored(a_checkpoint(START), a_checkpoint(START + 60))
    zone.keep(kind="alarm", id="a", state="raised")
    (import_dir.root / "approvals").rmdir()
    before = zone.files()
    zone.html()
    assert zone.files() == before
    assert os.environ.get("VEEN_ZONE") is None
