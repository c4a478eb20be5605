"""What the triggerer watches: carriers that are whole, and how many messages a hub has taken."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from support.dags.dag_zones import Site
from support.paths import ROOT

pytestmark = pytest.mark.timeout(900)
SCRIPT = """
import asyncio, importlib, sys
from pathlib import Path
sys.path.append(sys.argv[2])
import veen_watch

file = Path(sys.argv[1])
trigger = veen_watch.MediumTrigger(str(file))
path, given = trigger.serialize()
module, _, name = path.rpartition(".")
again = getattr(importlib.import_module(module), name)(**given)
print("TOLD", asyncio.run(anext(again.run())).payload, flush=True)
for _ in range(2):
    print("TAKEN", veen_watch.taken(trigger.zone()), flush=True)
    sys.stdin.readline()
zone = trigger.zone()
print("DUE", [veen_watch.is_due(n, zone) for n in (0, 9_999, 10_000)], flush=True)
"""


def test_a_signed_carrier_is_reported_and_messages_are_counted(
    dag_zone_pair: tuple[Site, Site],
) -> None:
    z1, z2 = dag_zone_pair
    z2.configure("[dags]\n", "[dags]\npoll_sec = 1\n")
    medium = z2.home.zone().dags.medium / "agb0"
    for name in ("whole", "unfinished"):
        (medium / name).mkdir(parents=True)
    (medium / "whole" / "carrier.sig").write_bytes(b"signed")
    plugins = ROOT / "plugins"
    online = counted(z1, plugins)
    assert online[1] - online[0] >= 7
    detail = watched_lines(z2, plugins, lambda: None)
    assert "TOLD {'carriers': 1}" in detail
    assert "DUE [False, False, True]" in detail


def counted(z1: Site, plugins: Path) -> list[int]:
    (z1.home.zone().dags.medium / "agb0" / "any").mkdir(parents=True)
    (z1.home.zone().dags.medium / "agb0" / "any" / "carrier.sig").touch()
    lines = watched_lines(z1, plugins, lambda: z1.emit(7))
    return [int(line.split()[1]) for line in lines if line.startswith("TAKEN")]


def watched_lines(site: Site, plugins: Path, between: object) -> list[str]:
    process = subprocess.Popen(
        [sys.executable, "-P", "-c", SCRIPT, str(site.file), str(plugins)],
        env=site.environment(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stdout is not None
    assert process.stdin is not None
    lines = []
    with process.stdin as heard, process.stdout as stdout:
        for line in stdout:
            lines.append(line.strip())
            if line.startswith("TAKEN"):
                between()  # type: ignore[operator]
                heard.write("\n")
                heard.flush()
    assert process.wait(60) == 0
    return lines
