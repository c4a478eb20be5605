"""H01: the page of the service claims no more than it checks, in the words of the verifier."""

from __future__ import annotations

import re
from pathlib import Path

from recorder.api.app import create_app
from recorder.query.package_verify import ClaimOutcome
from recorder.service.requests import Waits
from recorder.settings import load
from support.paths import ROOT
from support.recorder import query_world

FORMAT = ROOT / "docs" / "query-format.md"


def test_h01_the_page_calls_what_it_shows_unproven_or_failed(tmp_path: Path) -> None:
    config = tmp_path / "recorder.toml"
    config.write_text(query_world.recorder_toml("http://127.0.0.1:1", "00" * 32, 1))
    http = create_app(load(config), Waits(recorded_sec=0, completed_sec=0)).test_client()
    page, script = (http.get(item).get_data(as_text=True) for item in ("/", "/page.js"))
    assert "veen query verify PACKAGE --hub-id HEX --recorder-id HEX" in page
    verdicts = re.findall(r'say\("(\w+):', script)
    assert sorted(set(verdicts)) == ["Failed", "Unproven"]
    assert re.findall(r'say\("(Completed|Proven)', script) == []


def test_h01_the_format_names_the_outcomes_of_the_verifier() -> None:
    rows = re.findall(r"^\| (proven|failed|unproven) \|", FORMAT.read_text(), re.MULTILINE)
    assert sorted(rows) == sorted(item.value for item in ClaimOutcome)
