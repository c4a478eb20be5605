"""What a command imports before it does anything: counted, never timed."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from cli import table
from support.cli import cli_binary

HEAVY = {
    *("airflow", "asyncio", "boto3", "botocore", "cbor2", "cryptography", "flask", "gunicorn"),
    *("http", "httpx", "multiprocessing", "nacl", "pandas", "prometheus_client", "pyarrow"),
    *("pydantic", "pyhpke", "pyspark", "requests", "rich", "sqlite3", "ssl", "werkzeug"),
}
PACKAGES = {"hub", "recorder", "bridge", "zone", "spark_jobs"}
# Python's own start and Typer are about 200 of them.
MOST_MODULES, MOST_OWN = 290, 30
MARK = "modules at the end: "
PROGRAM = f"""
import sys
from cli.main import main
try:
    main()
finally:
    loaded = [name for name, module in sys.modules.items() if module]
    print({MARK!r}, *loaded, file=sys.stderr)
"""


def groups(rows: table.Rows, *words: str) -> Iterator[tuple[str, ...]]:
    for name, command in rows.items():
        if hasattr(command, "commands"):
            yield (*words, name)
            yield from groups(command.commands, *words, name)


GROUPS = [*groups(table.Rows(table.read()))]
COMMANDS = [("hub", "status"), ("hub", "start"), ("bridge", "verify"), ("recorder", "serve")]
SHORT = [
    ("--help",),
    ("version",),
    ("explain-error", "E.SEQ"),
    *((*words, "--help") for words in [*GROUPS, *COMMANDS, ("demo",), ("send",)]),
    ("no-such-command",),
    ("hub", "no-such-command"),
    ("hub", "status", "--no-such-option"),
    ("bridge", "verify"),
]


def imported(words: tuple[str, ...], folder: Path) -> set[str]:
    """The modules of the process of a command when it ends."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, *words],
        cwd=folder,
        env=cli_binary.environment(folder),
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode in (0, 1), done.stderr
    return set(done.stderr.rpartition(MARK)[2].split())


@pytest.mark.parametrize("words", SHORT, ids=" ".join)
def test_a_short_command_imports_little(words: tuple[str, ...], tmp_path: Path) -> None:
    modules = imported(words, tmp_path)
    roots = {name.partition(".")[0] for name in modules}
    assert roots & HEAVY == set()
    assert roots & PACKAGES == set()
    assert len(modules) <= MOST_MODULES
    assert len([name for name in modules if name.startswith(("cli.", "veen."))]) <= MOST_OWN


def test_what_a_command_runs_is_counted(tmp_path: Path) -> None:
    """A command that opens an identity imports cryptography: the others show an absence."""
    modules = imported(("id", "show", "--client", "absent"), tmp_path)
    assert {"cli.identity", "nacl", "veen.keystore.directory"} <= modules


@pytest.mark.parametrize("name", ["status", "key", "profile", "health", "tls-info"])
def test_a_question_to_a_hub_imports_no_service(name: str, tmp_path: Path) -> None:
    """It fails at the file of its CA, when all that it imports at first is there."""
    modules = imported(("hub", name, "--ca", "absent.pem"), tmp_path)
    assert "cli.hub_status" in modules
    assert {item.partition(".")[0] for item in modules} & (PACKAGES | {"sqlite3"}) == set()
    unused = {"prometheus_client", "http_message_signatures", "veen.client.client"}
    assert modules & unused == set()
