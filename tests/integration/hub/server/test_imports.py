"""What the processes of a hub import: no client, and Flask only where it serves."""

from __future__ import annotations

import subprocess
import sys

import pytest

CLIENT = {"httpx", "httpcore", "rich", "typer", "boto3", "pydantic", "veen.client"}
SERVER = {"flask", "gunicorn", "werkzeug", "jinja2"}


def imported(module: str) -> set[str]:
    code = f"import sys, {module}; print(*sys.modules)"
    command = [sys.executable, "-P", "-c", code]
    return set(subprocess.run(command, check=True, capture_output=True, text=True).stdout.split())


@pytest.mark.parametrize("module", ["hub.supervisor", "hub.sequencer.__main__"])
def test_supervisor_and_sequencer_import_neither_client_nor_server(module: str) -> None:
    assert imported(module) & (CLIENT | SERVER) == set()


def test_the_workers_import_no_client() -> None:
    modules = imported("hub.web.__main__")
    assert modules >= {"flask", "gunicorn"}
    assert modules & CLIENT == set()
