"""A page of ten thousand: what is not shown is not read."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from page_zone import NOW, opened_below
from veen_page_bridge import HELD, PAGE, quarantine
from veen_page_made import OF_RUN, SHORT, by_id, of_run, page

MANY = 10_000


@pytest.fixture(scope="module")
def large(make_zone_in: Callable[..., Any], tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Read by several tests, changed by none: it takes a while to write."""
    zone = make_zone_in(tmp_path_factory.mktemp("large"), "offline")
    zone.keep_many("import", MANY)
    return zone


def test_the_first_page_reads_what_it_shows_of_ten_thousand(large: Any) -> None:
    with opened_below(large.folder / "artefacts") as names:
        html = large.html()
    assert len(names) == SHORT + 1, "one more tells that there are more"
    assert html.count("/veen/import/") == SHORT
    assert "All, a page at a time" in html


def test_pages_hold_every_one_of_ten_thousand_once(large: Any) -> None:
    seen: list[str] = []
    before = None
    for _ in range(5):
        with opened_below(large.folder / "artefacts") as names:
            found = page(large.folder, "import", 25, lambda _: True, before)
        assert len(names) == 26
        seen += [one.id for one in found.rows]
        before = found.next_before
    assert seen == [f"{MANY - 1 - n:064x}" for n in range(125)]


def test_one_of_ten_thousand_is_found_by_reading_one(large: Any) -> None:
    with opened_below(large.folder / "artefacts") as names:
        found = by_id(large.folder, "import", [f"{17:064x}"])
    assert len(names) == 1
    assert [one.run_id for one in found.values()] == ["run-17"]


def test_a_run_of_ten_thousand_is_looked_for_among_those_before_its_end(large: Any) -> None:
    with opened_below(large.folder / "artefacts") as names:
        found = of_run(large.folder, "veen_import", "run-4000", NOW * 1000 + 4000)
    assert len(names) == OF_RUN
    assert [one.id for one in found] == [f"{4000:064x}"]


def test_ten_thousand_bundles_are_counted_and_a_page_of_them_shown(
    make_zone: Callable[..., Any],
) -> None:
    zone = make_zone("offline")
    zone.bundles(MANY, "waiting", "events 1 to 2 are not here yet")
    html = zone.html()
    assert f"{MANY} waiting" in html
    assert html.count("events 1 to 2 are not here yet") == HELD
    assert f"And {MANY - HELD} more" in html


def test_quarantine_reads_the_reasons_of_one_page(make_zone: Callable[..., Any]) -> None:
    zone = make_zone("offline")
    airlock = zone.bundles(1)
    for number in range(3 * PAGE):
        zone.quarantine(airlock, f"{number:064x}", f"why {number}", at=NOW + number)
    seen: list[str] = []
    before = None
    for _ in range(3):
        with opened_below(airlock.root / "quarantine") as names:
            found = quarantine(airlock, before)
        assert len(names) == PAGE
        seen += [one.told for one in found.rows]
        before = found.next_before
    assert seen == [f"why {3 * PAGE - 1 - n}" for n in range(3 * PAGE)]
    assert before is None
