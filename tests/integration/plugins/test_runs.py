"""Every line of the page leads to the run that made it, and alarms that stand come first."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from veen_page_artefacts import alarms, of_run, page
from veen_page_render import PageFrame, render

from support.plugins.page_zone import NOW
from support.recorder.anchor_documents import START, a_checkpoint

RUN = "manual__2026-11-16T10:00:00+00:00"
LINK = "/dags/veen_checkpoint/runs/manual__2026-11-16T10%3A00%3A00%2B00%3A00"


def runs(zone: Any, run_id: str) -> Any:
    return of_run(zone.folder, "veen_checkpoint", run_id, NOW * 1000 + 10)


def test_links_lead_to_the_run_that_made_it(make_page_zone: Callable[..., Any]) -> None:
    zone = make_page_zone()
    zone.keep(run_id=RUN)
    zone.keep(run_id="later", made_at=NOW * 1000 + 5, state="signed")
    html = zone.html()
    row = html[html.index(f'title="{"c" * 64}"') :].partition("</tr>")[0]
    assert f'<td data-name="Run"><a href="{LINK}" data-airflow' in row
    assert '(last seen by <a href="/dags/veen_checkpoint/runs/later"' in row
    assert ">verified</span>" in row, "what was verified is not merely signed again"
    assert [item.id for item in runs(zone, RUN).made] == ["c" * 64]
    assert runs(zone, "later").made == ()
    assert [artefact.id for artefact in runs(zone, "later").looked_at] == ["c" * 64]


def test_the_page_of_a_run_tells_apart_what_it_made_and_what_it_saw(
    make_page_zone: Callable[..., Any],
) -> None:
    zone = make_page_zone()
    zone.keep(id="old", run_id="first")
    zone.keep(id="old", run_id="second")
    zone.keep(id="new", run_id="second")
    asked = {"dag_id": "veen_checkpoint", "run_id": "second", "artefacts": runs(zone, "second")}
    html = render("veen_page_run.html", PageFrame("", NOW), **asked)
    written, _, seen = html.partition("seen again by this run")
    assert ("/checkpoint/new" in written, "/checkpoint/old" in written) == (True, False)
    assert ("/checkpoint/new" in seen, "/checkpoint/old" in seen) == (False, True)


def test_streams_checkpoints_and_anchors_lead_to_their_runs(
    make_page_zone: Callable[..., Any],
) -> None:
    zone = make_page_zone()
    first, last = a_checkpoint(START, (3, 1)), a_checkpoint(START + 60, (9, 1))
    zone.anchored(first)
    zone.sign(last)
    anchor = f"{first.checkpoint_id.hex()}-file-1"
    zone.keep(kind="anchor", id=anchor, dag_id="veen_anchor", run_id="a1")
    zone.keep(id=last.checkpoint_id.hex(), run_id="c2")
    overview = zone.overview()
    (row, _) = overview.streams.known.rows
    assert row.checkpoint.checkpoint_id == last.checkpoint_id
    assert overview.checkpoints.known.anchors.last.checkpoint_id == first.checkpoint_id
    html = zone.html()
    streams, _, rest = html.partition('id="checkpoints"')
    assert streams.count('href="/dags/veen_checkpoint/runs/c2"') == 2, "of each stream"
    facts = rest.partition("</dl>")[0]
    assert 'href="/dags/veen_checkpoint/runs/c2"' in facts
    assert 'href="/dags/veen_anchor/runs/a1"' in facts


def test_each_stream_has_the_age_of_the_last_checkpoint_that_covers_it(
    make_page_zone: Callable[..., Any],
) -> None:
    zone = make_page_zone()
    zone.sign(a_checkpoint(START, (3, 1)))
    html = zone.html(now=START + 600, heads=lambda _place: {"record/app/new": 4})
    rows = html.partition('id="streams"')[2].partition("</table>")[0].split("<tr>")[2:]
    detail = [
        row.partition('data-name="Last checkpoint">')[2].partition("</td>")[0] for row in rows
    ]
    assert detail == ["10 minutes ago", "10 minutes ago", "none yet"]


def test_what_is_held_up_leads_to_the_run_that_held_it_up(
    make_page_zone: Callable[..., Any],
) -> None:
    zone = make_page_zone("offline")
    zone.bundles(2, "waiting", "events are missing")
    zone.keep(kind="import", id=f"{1:064x}", dag_id="veen_import", run_id="i1", state="waiting")
    held = zone.html().partition("Held up")[2].partition("</table>")[0]
    assert held.count('href="/dags/veen_import/runs/i1"') == 1
    assert held.count("none is known") == 1


def test_heads_are_those_that_the_hub_tells_now(make_page_zone: Callable[..., Any]) -> None:
    zone = make_page_zone("offline")
    zone.sign(a_checkpoint(START, (3, 1)))
    detail = {"record/app/a": 7, "import/record/app/a": 12}
    rows = {row.name: row for row in zone.overview(heads=lambda _: detail).streams.known.rows}
    assert (rows["record/app/a"].head, rows["record/app/a"].unsigned) == (7, 4)
    assert (rows["import/record/app/a"].head, rows["import/record/app/a"].unsigned) == (12, 12)
    assert rows["record/app/b"].head == 1, "what the hub does not tell, the checkpoint does"


def test_an_alarm_says_what_is_wrong(make_page_zone: Callable[..., Any]) -> None:
    zone = make_page_zone()
    detail = "carriers were refused and are in quarantine: df072392382e2b41; look at them."
    zone.keep(kind="alarm", id="a", state="raised", summary={"what": detail})
    assert detail in zone.html()


def test_h35_a_failed_run_shows_with_its_text_and_the_section_of_the_runbook(
    make_page_zone: Callable[..., Any],
) -> None:
    zone = make_page_zone()
    summary = {"what": "the hub does not answer. " * 30, "runbook": "A query has failed on Spark"}
    zone.keep(kind="alarm", id="veen_query-answer-failed", state="raised", summary=summary)
    html = zone.html()
    assert "the hub does not answer." in html
    assert "runbook A query has failed on Spark" in html


def test_an_alarm_that_is_over_is_not_shown_as_raised(make_page_zone: Callable[..., Any]) -> None:
    zone = make_page_zone()
    zone.keep(kind="alarm", id="gaps", state="raised")
    assert 'id="alarms"' in zone.html()
    zone.keep(kind="alarm", id="gaps", state="over", run_id="later")
    assert 'id="alarms"' not in zone.html()


def test_alarms_that_stand_come_before_newer_ones_that_are_over(
    make_page_zone: Callable[..., Any],
) -> None:
    zone = make_page_zone()
    zone.keep(kind="alarm", id="stands", state="raised", made_at=1)
    for number in range(40):
        zone.keep(kind="alarm", id=f"over-{number}", state="over", made_at=2 + number)
    may_read = lambda _dag_id: True  # noqa: E731
    first, result = alarms(zone.folder, may_read), page(zone.folder, "alarm", 25, may_read)
    assert [row.id for row in first.rows] == ["stands"]
    asked = {"artefacts": result, "first": first, "before": None}
    html = render("veen_page_list.html", PageFrame("", NOW), **asked)
    assert html.index("/alarm/stands") < html.index("/alarm/over-39")
