"""A page of ten thousand: what is not shown is not read."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable
from typing import Any

import pytest
from veen_page_artefacts import OF_RUN, SHORT, by_id, of_run, page
from veen_page_bridge import HELD, PAGE, quarantine

from bridge.importer.status import StatusLimits, read_status
from support.plugins.page_zone import NOW, opened_below, touched_below
from support.recorder.anchor_documents import START, a_checkpoint

FEW, MANY = 100, 10_000


@pytest.fixture(scope="module")
def large(make_page_zone_in: Callable[..., Any], tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Read by several tests, changed by none: it takes a while to write."""
    return filled(make_page_zone_in(tmp_path_factory.mktemp("large"), "offline"), MANY)


@pytest.fixture(scope="module")
def small(make_page_zone_in: Callable[..., Any], tmp_path_factory: pytest.TempPathFactory) -> Any:
    return filled(make_page_zone_in(tmp_path_factory.mktemp("small"), "offline"), FEW)


def filled(zone: Any, count: int) -> Any:
    """So many bundles in the ledger and among what runs have kept, and checkpoints with anchors."""
    zone.keep_many("import", count)
    zone.bundles(count, "waiting", "events 1 to 2 are not here yet")
    zone.old_anchors(count // 10)
    zone.anchored(a_checkpoint(START), a_checkpoint(START + 60))
    return zone


def test_the_first_page_costs_the_same_with_ten_thousand_bundles_as_with_a_hundred(
    small: Any, large: Any
) -> None:
    counts = []
    for zone in (small, large):
        zone.html()
        began = time.perf_counter()
        with touched_below(zone.folder) as names:
            zone.html()
        print(f"a first page in {1000 * (time.perf_counter() - began):.0f} ms")
        counts.append(sorted(name.removeprefix(str(zone.folder)) for name in names))
    few, many = counts
    assert len(few) == len(many)
    assert len(set(many)) < 60, "and that is little"


def test_as_many_rows_of_the_ledger_are_read_of_ten_thousand_as_of_a_hundred(
    small: Any, large: Any
) -> None:
    counts = []
    for zone in (small, large):
        rows: list[Any] = []
        db = sqlite3.connect(zone.folder / "import" / "ledger.db")
        db.row_factory = lambda _cursor, row, rows=rows: rows.append(row) or row
        result = read_status(db, 0, StatusLimits(bundles=HELD, streams=50, spans=8))
        db.close()
        counts.append(len(rows))
        assert (len(result.unfinished), len(result.streams)) == (HELD, 1)
        assert result.streams[0].held == ((1, result.unfinished_total),)
    assert counts[0] == counts[1]


def test_the_first_page_reads_what_it_shows_of_ten_thousand(large: Any) -> None:
    with opened_below(large.folder / "artefacts") as names:
        html = large.html()
    assert len([name for name in names if "/import/" in name]) == SHORT + 1 + HELD, (
        "one more tells that there are more, and each that is held up has its run"
    )
    assert html.count("/veen/import/") == SHORT
    assert "All, a page at a time" in html


def test_pages_hold_every_one_of_ten_thousand_once(large: Any) -> None:
    seen: list[str] = []
    before = None
    for _ in range(5):
        with opened_below(large.folder / "artefacts") as names:
            result = page(large.folder, "import", 25, lambda _: True, before)
        assert len(names) == 26
        seen += [row.id for row in result.rows]
        before = result.next_before
    assert seen == [f"{MANY - 1 - n:064x}" for n in range(125)]


def test_one_of_ten_thousand_is_found_by_reading_one(large: Any) -> None:
    with opened_below(large.folder / "artefacts") as names:
        result = by_id(large.folder, "import", [f"{17:064x}"])
    assert len(names) == 1
    assert [artefact.run_id for artefact in result.values()] == ["run-17"]


def test_a_run_of_ten_thousand_is_looked_for_among_those_before_its_end(large: Any) -> None:
    with opened_below(large.folder / "artefacts") as names:
        result = of_run(large.folder, "veen_import", "run-4000", NOW * 1000 + 4000)
    assert len(names) == OF_RUN
    assert [item.id for item in result.made] == [f"{4000:064x}"]


def test_ten_thousand_bundles_are_counted_and_a_page_of_them_shown(large: Any) -> None:
    html = large.html()
    assert f"{MANY} waiting" in html
    assert html.count("events 1 to 2 are not here yet") == HELD
    assert f"And {MANY - HELD} more" in html
    assert f"1 to {MANY}" in html, "what is held without a hole is one run"


def test_quarantine_reads_the_reasons_of_one_page(make_page_zone: Callable[..., Any]) -> None:
    zone = make_page_zone("offline")
    import_dir = zone.bundles(1)
    for number in range(3 * PAGE):
        zone.quarantine(import_dir, f"{number:064x}", f"why {number}", at=NOW + number)
    seen: list[str] = []
    before = None
    for _ in range(3):
        with opened_below(import_dir.root / "quarantine") as names:
            result = quarantine(import_dir, before)
        assert len(names) == PAGE
        seen += [row.detail for row in result.rows]
        before = result.next_before
    assert seen == [f"why {3 * PAGE - 1 - n}" for n in range(3 * PAGE)]
    assert before is None
