"""The commands of the runbook about the bridge, run between two zones as they stand there."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from dag_zones import Site, veen

RUNBOOK = Path(__file__).parents[2] / "docs" / "runbook.md"
_BOX = re.compile(r"^## ([^\n]+)$|^```shell\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def boxes() -> dict[str, str]:
    """The box of each section that has one."""
    found, section = {}, ""
    for one in _BOX.finditer(RUNBOOK.read_text()):
        if one[1]:
            section = one[1]
        else:
            found[section] = one[2]
    return found


def run(script: str, site: Site, work: Path) -> str:
    program = work / "veen"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -P -m cli.main "$@"\n')
    program.chmod(0o755)
    zone = site.home.zone()
    more = {
        "PATH": f"{work}:{os.environ['PATH']}", "ZONE": str(site.file), "WORK": str(work),
        "MEDIUM": str(zone.dags.medium), "TRUST": str(site.home.trust),
    }  # fmt: skip
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", script], env=os.environ | more, cwd=work,
        capture_output=True, text=True, check=False, timeout=200,
    )  # fmt: skip
    assert done.returncode == 0, f"{script}\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.mark.parametrize(
    "section",
    [
        "An export does not end", "A carrier is refused", "An import does not end",
        "The bridge has gaps",
    ],
)  # fmt: skip
def test_the_commands_of_a_section_work(
    section: str, pair: tuple[Site, Site], tmp_path: Path
) -> None:
    z1, z2 = pair
    if section.startswith("An export"):
        who = ["--client", str(z1.home.identity("admin").root), "--principal", "admin"]
        veen("recorder", "checkpoint", "create", "--config", str(z1.file), *who)
        assert "verdict      accepted" in run(boxes()[section], z1, tmp_path)
        shutil.copytree(
            z1.home.zone().dags.medium / "agb0",
            z2.home.zone().dags.medium / "agb0",
            dirs_exist_ok=True,
        )
        return
    assert run(boxes()[section], z2, tmp_path).strip()


def test_every_box_about_the_bridge_is_run_here() -> None:
    assert sorted(boxes()) == [
        "A carrier is refused", "An export does not end", "An import does not end",
        "The bridge has gaps",
    ]  # fmt: skip
