"""The service on a gated hub: set up as the documentation says, and without its capability."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from support.paths import ROOT
from support.recorder import query_world
from zone.services import free_port

pytestmark = pytest.mark.e2e

_BOX = re.compile(r"^```sh\n(.*?)^```$", re.MULTILINE | re.DOTALL)
CAPPED = ("record/query/requests", "record/query/results", "record/query/audit/access")


def boxes() -> list[str]:
    return _BOX.findall((ROOT / "docs" / "query.md").read_text())


class Site:
    """A folder in which the steps are taken, on ports of its own."""

    def __init__(self, folder: Path, hub_port: int, query_port: int) -> None:
        self.folder = folder
        self._ports = {"127.0.0.1:8080": hub_port, "127.0.0.1:8090": query_port}
        (folder / "bin").mkdir()
        program = folder / "bin" / "veen"
        program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m cli.main "$@"\n')
        program.chmod(0o755)
        self.url = f"http://127.0.0.1:{query_port}"
        self.environment = {
            "PATH": f"{folder / 'bin'}:{os.environ['PATH']}",
            "PYTHONPATH": str(ROOT),
            "HOME": str(folder),
            "NO_PROXY": "*",
            "VEEN_QUERY_API": self.url,
        }

    def run(self, script: str) -> str:
        for usual, port in self._ports.items():
            script = script.replace(usual, f"127.0.0.1:{port}")
        done = self._bash(script)
        assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
        return done.stdout

    def stop(self) -> None:
        self._bash("veen hub stop --data-dir hub; pid=results/run/service.pid; "
                   "if [ -e $pid ]; then kill $(cat $pid); fi")  # fmt: skip

    def _bash(self, script: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["bash", "-euo", "pipefail", "-c", script], cwd=self.folder, env=self.environment,
            capture_output=True, text=True, check=False, timeout=200, stdin=subprocess.DEVNULL,
        )  # fmt: skip


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    result = Site(tmp_path, free_port(), free_port())
    try:
        yield result
    finally:
        result.stop()


@pytest.mark.timeout(600)
def test_the_documented_steps_lead_to_a_proof(site: Site) -> None:
    output = site.run("\n".join(boxes()) + "\nwait $service")
    digest = json.loads((site.folder / "digest.json").read_text())
    assert digest["row_count"] == digest["event_count"] == 1
    assert digest["record_event"]["stream"] == "record/query/results"
    assert " 0 failed," in output.splitlines()[-1]


@pytest.mark.parametrize("kind", ["missing", "another's", "no capability"])
def test_a_capability_that_is_none_is_named_at_the_start(
    gated_query_zone: Any, kind: str, tmp_path: Path
) -> None:
    path = tmp_path / "service.cap"
    if kind == "another's":
        path = gated_query_zone.capability(*CAPPED, subject="producer")
    elif kind == "no capability":
        path.write_bytes(b"\x00")
    with pytest.raises(AssertionError, match=r"capability is for client_id|service\.cap"):
        gated_query_zone.start("recorder", "serve", "--cap", str(path))


def test_without_a_capability_nothing_is_run(gated_query_zone: Any) -> None:
    checkpoint = gated_query_zone.checkpoint()
    gated_query_zone.start().catch_up(checkpoint)
    with gated_query_zone.as_("alice") as alice:
        reply = alice.post("/api/query/submit", json=query_world.a_query(query_id="q-1"))
        assert (reply.status_code, reply.json()["error_code"]) == (503, "internal_error")
    assert (
        b"E.AUTH" in gated_query_zone.log.read_bytes()
        or b"E.CAP" in gated_query_zone.log.read_bytes()
    )
    gated_query_zone.stop()
    gated_query_zone.start("recorder", "serve", "--cap", str(gated_query_zone.capability(*CAPPED)))
    with gated_query_zone.as_("alice") as alice:
        result = query_world.wait_until(lambda: _answered(alice), "a query that is answered")
    assert result["result_digest"]["row_count"] == 5


def _answered(alice: httpx.Client) -> Any:
    reply = alice.post("/api/query/submit", json=query_world.a_query())
    return reply.json() if reply.status_code == 200 else None
