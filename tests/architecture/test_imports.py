"""What each folder may import, as the table of the architecture says, read from every file."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FOLDERS = ("veen", "hub", "recorder", "bridge", "spark_jobs", "cli", "dags", "plugins")
NOT_PRODUCT = ("tests", "bench", "docker", "docs")

# Which of our own folders a folder may import, beside itself.
OURS = {
    "veen": set[str](),
    "hub": {"veen"},
    "recorder": {"veen"},
    "bridge": {"veen"},
    "spark_jobs": {"veen", "recorder", "bridge"},
    "cli": {"veen", "hub", "recorder", "bridge", "spark_jobs"},
    "dags": {"veen", "recorder", "bridge"},
    "plugins": {"veen", "recorder", "bridge"},
}
# The only places where a library may stand.
STANDS_IN = {
    "flask": ("hub/api/", "recorder/api/"),
    "werkzeug": ("hub/api/", "recorder/api/"),
    "pyspark": ("spark_jobs/",),
    "airflow": ("dags/", "plugins/"),
    "boto3": ("veen/objects/s3.py",),
    "botocore": ("veen/objects/s3.py",),
    "mypy_boto3_s3": ("veen/objects/s3.py",),
    "sqlite3": ("veen/client/outbox.py", "hub/storage/", "recorder/", "bridge/"),
}
# Folders that take these libraries and no others; veen's own doors take what they open.
TAKES_ONLY = {
    "veen": {"cbor2", "nacl", "cryptography", "pyhpke", "rfc8785"},
    "dags": {"airflow"},
    "plugins": {"airflow", "fastapi", "jinja2", "sqlalchemy"},
}
# Airflow puts both folders on the path: what stands there is called veen_ and imported by that.
BESIDE = {"dags": "veen_", "plugins": "veen_"}
DOORS = {
    "veen/objects/": {"boto3", "botocore", "mypy_boto3_s3"},
    "veen/client/": {"httpx", "http_message_signatures"},
    "veen/http_signature.py": {"http_message_signatures"},
    "veen/zone_metrics.py": {"prometheus_client"},
}


def imported(tree: ast.AST) -> Iterator[str]:
    """Every module that a file imports, at the top or within a function; "." when relative."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module if node.module and not node.level else "."
        elif isinstance(node, ast.Call) and ast.unparse(node.func) in DYNAMIC:
            yield from (arg.value for arg in node.args[:1] if isinstance(arg, ast.Constant))


DYNAMIC = {"__import__", "import_module", "importlib.import_module"}


def faults_of(path: str, module: str) -> Iterator[str]:
    """Why the file at ``path`` may not import ``module``, if it may not."""
    folder, top = path.split("/", maxsplit=1)[0], module.split(".", maxsplit=1)[0]
    if module == ".":
        yield f"{path}: a relative import"
    elif top in (*FOLDERS, *NOT_PRODUCT):
        if top != folder and top not in OURS[folder]:
            yield f"{path}: {folder} may not import {module}"
        elif folder in {"dags", "plugins"} and top == folder:
            yield f"{path}: {folder} is no package"
    elif top in STANDS_IN and not path.startswith(STANDS_IN[top]):
        yield f"{path}: {top} stands only in {', '.join(STANDS_IN[top])}"
    elif folder in BESIDE and top.startswith(BESIDE[folder]):
        return
    elif folder in TAKES_ONLY and top not in sys.stdlib_module_names:
        doors = [taken for door, taken in DOORS.items() if path.startswith(door)]
        if top not in TAKES_ONLY[folder].union(*doors):
            yield f"{path}: {folder} does not take {top}"


def faults(root: Path) -> list[str]:
    """Every import below ``root`` that the architecture does not allow."""
    found = []
    for folder in FOLDERS:
        for file in sorted((root / folder).rglob("*.py")):
            path = file.relative_to(root).as_posix()
            for module in imported(ast.parse(file.read_text())):
                found += faults_of(path, module)
    return found


def plugin_faults(root: Path) -> list[str]:
    """What Airflow would load from plugins/ under a name that could hide one of ours."""
    entries = [path for path in (root / "plugins").glob("*") if path.name != "__pycache__"]
    folders = [f"{path.name} is a folder" for path in entries if path.is_dir()]
    files = (path.name for path in entries if path.suffix == ".py")
    return folders + [
        f"{name} is not named veen_" for name in files if not name.startswith("veen_")
    ]


def test_every_folder_imports_what_it_may() -> None:
    assert faults(ROOT) == []


def test_plugins_are_flat_and_carry_our_prefix() -> None:
    assert plugin_faults(ROOT) == []


def test_the_folders_are_read_at_all() -> None:
    assert {"cbor2", "nacl", "hashlib"} <= {
        module.split(".")[0]
        for file in (ROOT / "veen").glob("*.py")
        for module in imported(ast.parse(file.read_text()))
    }


@pytest.mark.parametrize(
    ("path", "line"),
    [
        ("veen/msg.py", "import hub"),
        ("veen/msg.py", "from hub.storage import log"),
        ("veen/msg.py", "import flask"),
        ("veen/msg.py", "import httpx"),
        ("veen/msg.py", "import boto3"),
        ("veen/msg.py", "import sqlite3"),
        ("veen/client/state.py", "import sqlite3"),
        ("veen/keystore/sealed.py", "import httpx"),
        ("veen/objects/files.py", "import boto3"),
        ("veen/objects/s3.py", "import requests"),
        ("veen/msg.py", "from . import cbor"),
        ("veen/msg.py", "from .cbor import decode"),
        ("veen/msg.py", "import tests.unit"),
        ("hub/log.py", "import recorder.streams"),
        ("hub/log.py", "import bridge"),
        ("hub/log.py", "import flask"),
        ("hub/log.py", "import boto3"),
        ("hub/log.py", "import pyspark.sql"),
        ("hub/log.py", "def f() -> None:\n    from recorder import emit"),
        ("hub/log.py", "if TYPE_CHECKING:\n    import bridge"),
        ("hub/log.py", "importlib.import_module('bridge.importer')"),
        ("hub/log.py", "__import__('bridge')"),
        ("recorder/emit.py", "import hub"),
        ("recorder/query.py", "import flask"),
        ("recorder/query.py", "from airflow.sdk import dag"),
        ("bridge/importer.py", "import recorder"),
        ("bridge/api/web.py", "import flask"),
        ("spark_jobs/fold.py", "import hub.log"),
        ("spark_jobs/fold.py", "import cli"),
        ("spark_jobs/fold.py", "import airflow"),
        ("cli/main.py", "import pyspark"),
        ("cli/main.py", "import dags"),
        ("dags/veen_export.py", "import hub"),
        ("dags/veen_export.py", "import spark_jobs.fold"),
        ("dags/veen_export.py", "import pyspark"),
        ("dags/veen_export.py", "import cli"),
        ("dags/veen_export.py", "import requests"),
        ("dags/veen_export.py", "from dags import other"),
        ("plugins/veen_ui.py", "import hub"),
        ("plugins/veen_ui.py", "import flask"),
        ("plugins/veen_ui.py", "import httpx"),
        ("dags/veen_export.py", "import fastapi"),
    ],
)
def test_the_check_finds(tmp_path: Path, path: str, line: str) -> None:
    file = tmp_path / path
    file.parent.mkdir(parents=True)
    file.write_text(line)
    assert len(faults(tmp_path)) == 1


@pytest.mark.parametrize(
    ("path", "line"),
    [
        ("veen/msg.py", "import hashlib, cbor2\nfrom veen import cbor"),
        ("veen/objects/s3.py", "import boto3\nfrom botocore.exceptions import ClientError"),
        ("veen/client/transport.py", "import httpx"),
        ("veen/client/outbox.py", "import sqlite3"),
        ("hub/api/app.py", "import flask\nfrom hub.log import Log\nfrom veen import cbor"),
        ("recorder/api/app.py", "import flask"),
        ("spark_jobs/fold.py", "import pyspark\nfrom recorder import fold\nimport bridge, pandas"),
        ("cli/main.py", "import typer, hub, recorder, bridge, spark_jobs, veen"),
        ("dags/veen_export.py", "from airflow.sdk import dag\nimport bridge, recorder, veen"),
        ("plugins/veen_ui.py", "from airflow.plugins_manager import AirflowPlugin\nimport json"),
        ("plugins/veen_ui.py", "import fastapi, jinja2, sqlalchemy\nfrom veen_other import one"),
    ],
)
def test_the_check_lets_pass(tmp_path: Path, path: str, line: str) -> None:
    file = tmp_path / path
    file.parent.mkdir(parents=True)
    file.write_text(line)
    assert faults(tmp_path) == []


@pytest.mark.parametrize("path", ["bridge.py", "__init__.py", "sub/veen_ui.py", "sub/notes.txt"])
def test_the_check_of_plugins_finds(tmp_path: Path, path: str) -> None:
    file = tmp_path / "plugins" / path
    file.parent.mkdir(parents=True)
    file.write_text("")
    assert plugin_faults(tmp_path)
