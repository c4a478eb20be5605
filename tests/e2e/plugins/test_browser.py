"""A person at a real Airflow and at the recorder's own page, with Chromium.

VEEN_SCREENSHOTS=docs/screenshots keeps what was seen.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from support.hub.hub_process import configured
from support.plugins.airflow_person import AirflowPerson
from support.plugins.chromium import Chromium, programs
from support.plugins.two_zones import COUNTS, TwoZones
from support.recorder import query_world

pytestmark = [
    pytest.mark.timeout(1500),
    pytest.mark.skipif(
        programs() is None,
        reason="no Chromium here: apt-get install chromium chromium-driver, to see the pages tried",
    ),
]
DAMAGED = "record/infrastructure/hosts"


@pytest.fixture
def chromium(tmp_path: Path) -> Iterator[Chromium]:
    with closing(Chromium(tmp_path)) as result:
        yield result


@pytest.fixture(scope="module")
def zones() -> Iterator[TwoZones]:
    """An offline zone that runs, with three carriers on its medium; one is damaged.

    PostgreSQL runs as another user where we are root, and would not get through pytest's folders.
    """
    with TemporaryDirectory(prefix="veen-zones-") as folder:
        result = TwoZones(Path(folder)).make()
        result.damage(DAMAGED)
        try:
            result.up()
            yield result
        finally:
            result.down()


def airflow(zones: TwoZones, name: str) -> AirflowPerson:
    return AirflowPerson(zones.offline.zone().airflow.url, name, zones.passwords()[name])


def log_in(chromium: Chromium, zones: TwoZones, name: str) -> None:
    chromium.log_in(zones.offline.zone().airflow.url, name, zones.passwords()[name])
    chromium.open_page()


def decide(chromium: Chromium) -> None:
    """From the page to the question, and yes."""
    chromium.click("a", "Decide in Airflow")
    chromium.leave_frame()
    chromium.click("button", "Approve")


def test_an_operator_lets_in_what_a_viewer_may_only_see(
    chromium: Chromium, zones: TwoZones
) -> None:
    with closing(airflow(zones, "admin")) as admin:
        assert admin.end(admin.start("veen_checkpoint")) == "success"
        run = admin.start("veen_import")
        admin.await_question(run)
        be_refused(chromium, zones)
        assert len(admin.questions(run)) == 1, "nobody has decided"
        log_in(chromium, zones, "operator")
        decide(chromium)
        ended, tasks = admin.end(run), admin.tasks(run)
        assert (tasks["import"], tasks["receipt"]) == ("success", "success"), (ended, tasks)
        reconciled = admin.start("veen_reconcile")
        assert admin.end(reconciled) == "failed", "a carrier is missing, which is an alarm"
        links = admin.links(run, "import")
        report = admin.links(reconciled, "reconcile")
    see_what_came(chromium, zones)
    see_receipt(chromium, zones, links["Receipt"])
    see_bundle(chromium, zones, links["Bundle"])
    see_one(chromium, zones, links["What it made"], "Carriers in:")
    see_one(chromium, zones, report["Report"], "Reconciliations:")
    assert chromium.refused_resources() == []


def be_refused(chromium: Chromium, zones: TwoZones) -> None:
    """A viewer sees all of it, and may not answer."""
    log_in(chromium, zones, "viewer")
    text = chromium.text()
    assert "Hub: ready" in text
    assert "Import into zone z2?" in text
    assert "signed by the hub" in text
    assert text.count("verified") >= 3, "a checkpoint and two carriers"
    assert "refused" in text
    chromium.shoot("page-waiting")
    decide(chromium)
    chromium.wait(lambda: "Access Denied" in chromium.text(), "a refusal")
    chromium.shoot("viewer-refused")


def see_what_came(chromium: Chromium, zones: TwoZones) -> None:
    chromium.driver.get(zones.offline.zone().airflow.url)
    chromium.open_page()
    text = chromium.text()
    assert "2 imported" in text
    assert f"1 to {COUNTS['gateway']}" in text
    assert "No approval is pending." in text
    assert "1 in quarantine" in text
    assert "the bridge has gaps" in text.partition("Waiting for approval")[0], "among the alarms"
    picture = chromium.find("img")
    chromium.show("#in")
    chromium.wait(lambda: picture.get_property("naturalWidth") > 0, "the picture")
    chromium.shoot("page-imported")
    chromium.show("#quarantine")
    chromium.shoot("page-quarantine")
    chromium.leave_frame()
    chromium.as_phone()
    chromium.driver.get(f"{zones.offline.zone().airflow.url}/veen/")
    page, window = chromium.widths()
    assert page <= window, "a phone does not scroll sideways"
    chromium.shoot("page-phone")
    chromium.driver.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


def follow(chromium: Chromium, zones: TwoZones, link: str) -> None:
    """A link of a task; those of the plugin are shown in Airflow's own window."""
    chromium.driver.get(zones.offline.zone().airflow.url + link)
    if link.startswith("/plugin/"):
        chromium.driver.switch_to.frame(chromium.find("iframe[title='Recorder & Bridge']"))


def see_bundle(chromium: Chromium, zones: TwoZones, link: str) -> None:
    """Three came with the run, so that the link leads to all that it made."""
    follow(chromium, zones, link)
    cells = "td[data-name=State]"
    chromium.find(cells)
    states = [item.text for item in chromium.all(cells)]
    assert sorted(states)[:2] == ["imported", "imported"]
    assert len(states) >= 3
    chromium.leave_frame()


def see_one(chromium: Chromium, zones: TwoZones, link: str, title: str) -> None:
    follow(chromium, zones, link)
    heading = chromium.find("h1")
    chromium.wait(lambda: heading.text.startswith(title), title)
    assert "Run" in [item.text for item in chromium.all("dt")]
    chromium.leave_frame()


def see_receipt(chromium: Chromium, zones: TwoZones, link: str) -> None:
    follow(chromium, zones, link)
    rows = chromium.wait(lambda: chromium.all("tbody tr"), "what the run made")
    (first, *_) = [row for row in rows if " imported" in row.text]
    chromium.driver.execute_script("arguments[0].querySelector('a.id').click()", first)
    chromium.find("#receipt")
    assert "Words" in chromium.text()
    chromium.leave_frame()
    chromium.shoot("receipt")


@pytest.fixture(scope="module")
def recorder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A hub and ``veen recorder serve`` with 50 events."""
    folder = tmp_path_factory.mktemp("hub")
    hub = configured(folder, query_world.hub_toml())
    hub.start()
    try:
        zone = query_world.Zone(tmp_path_factory.mktemp("recorder"), hub)
        with query_world.closing(zone):
            zone.emit("http.request", 50)
            checkpoint = zone.checkpoint()
            zone.start("recorder", "serve").catch_up(checkpoint)
            yield zone
    finally:
        hub.destroy()


def test_the_recorders_page_refuses_a_wrong_token(chromium: Chromium, recorder: Any) -> None:
    chromium.driver.get(recorder.url)
    chromium.find("#token").send_keys("not the token")
    chromium.click("button", "Submit")
    state = chromium.find("#state")
    chromium.wait(lambda: state.get_attribute("class") == "bad", "a refusal")
    assert state.text == "unauthorized: the token belongs to no principal; see [[query.principals]]"
    assert not chromium.find("#result").is_displayed()


def test_the_recorders_page_shows_digest_evidence_and_verification(
    chromium: Chromium, recorder: Any
) -> None:
    chromium.driver.get(recorder.url)
    chromium.find("#token").send_keys(query_world.TOKENS["alice"])
    chromium.find("#reason").send_keys("seen in a browser")
    chromium.click("button", "Submit")
    state = chromium.find("#state")
    chromium.wait(lambda: "the digest" in state.text, "a verdict")
    assert (state.get_attribute("class"), state.text[:9]) == ("open", "Unproven:")
    terms = [item.text for item in chromium.all("#digest dt")]
    facts = dict(zip(terms, [item.text for item in chromium.all("#digest dd")], strict=True))
    assert facts["rows"] == "50"
    assert len(facts["rows_hash"]) == len(facts["evidence_hash"]) == 64
    assert json.loads(facts["evidence"])["mode"] == "full"
    assert facts["hub_id"] == recorder.hub_id.hex()
    assert len(chromium.all("#rows tr")) == 51
    chromium.shoot("recorder-query")
    verify_saved(chromium, recorder, facts["result_id"])
    chromium.as_phone()
    page, window = chromium.widths()
    assert page <= window, "a phone does not scroll sideways"
    assert chromium.refused_resources() == []


def verify_saved(chromium: Chromium, recorder: Any, result_id: str) -> None:
    """The package that the page saves holds offline, by the command that the page names."""
    package = chromium.downloads() / f"{result_id}.veenproof"
    chromium.click("button", "Download the proof package")
    chromium.wait(package.exists, "the package")
    trust = ["--hub-id", recorder.hub_id.hex(), "--recorder-id", recorder.reader.client_id.hex()]
    trust += ["--hub-identity", str(recorder.hub.data)]
    words = ["query", "verify", str(package), *trust, "--json"]
    done = subprocess.run(
        [sys.executable, "-m", "cli.main", *words], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
