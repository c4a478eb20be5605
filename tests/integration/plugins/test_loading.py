"""What Airflow loads of plugins/ in each of its processes: little, and it hides nothing of ours."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from support.paths import ROOT

LOADED = """
import json, sys
from airflow import plugins_manager
plugins, errors = plugins_manager._get_plugins()
import bridge, hub, recorder, veen, zone
packages = [one.__file__ for one in (bridge, hub, recorder, veen, zone)]
ours = sorted(name for name in sys.modules if name.startswith("veen_"))
sys.path.append(sys.argv[1])
from veen_airflow.artefacts import DagArtefact
made = DagArtefact(kind="retention", id="manual__10:00+00:00", state="pruned").link
print(json.dumps({"names": [one.name for one in plugins], "errors": errors, "packages": packages,
                  "modules": ours, "views": [one.external_views for one in plugins], "made": made}))
"""


@pytest.fixture(scope="module")
def loaded(tmp_path_factory: pytest.TempPathFactory) -> Any:
    environ = os.environ | {
        "AIRFLOW_HOME": str(tmp_path_factory.mktemp("airflow")),
        "AIRFLOW__CORE__PLUGINS_FOLDER": str(ROOT / "plugins"),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "AIRFLOW__API__BASE_URL": "https://airflow.example/below",
    }
    done = subprocess.run(
        [sys.executable, "-c", LOADED, str(ROOT / "dags")],
        env=environ,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def test_the_plugin_loads_without_an_error(loaded: Any) -> None:
    assert loaded["errors"] == {}
    assert "veen" in loaded["names"]


def test_the_page_is_not_loaded_before_it_is_asked_for(loaded: Any) -> None:
    assert [name for name in loaded["modules"] if name.startswith("veen_page")] == []


def test_our_packages_are_still_ours(loaded: Any) -> None:
    assert all(Path(item).is_relative_to(ROOT) for item in loaded["packages"])
    assert not any("plugins" in Path(item).parts for item in loaded["packages"])


def test_the_page_is_found_where_airflow_stands_below_a_path(loaded: Any) -> None:
    views = [view for some in loaded["views"] for view in some]
    assert [view["href"] for view in views] == ["/below/veen/"]


def test_a_task_leads_to_what_it_made_where_airflow_stands_below_a_path(loaded: Any) -> None:
    assert loaded["made"] == "/below/veen/retention/manual__10%3A00%2B00%3A00"
