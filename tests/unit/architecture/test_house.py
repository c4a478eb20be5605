"""House rules of the product code: sizes, one hash, no hidden inputs, and whose packages run."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pyspark
import pytest

from support.paths import ROOT

PACKAGES = ("veen", "hub", "recorder", "bridge", "zone", "spark_jobs", "cli")
FOLDERS = (*PACKAGES, "dags", "plugins")
# The packages of veen through which it meets the world.
EDGES = {"client", "keystore", "objects", "system"}
MAX_FILE_LINES, MAX_FUNCTION_LINES = 600, 60
HIDDEN_WORDS = {"random", "randombytes", "secrets", "urandom", "environ", "getenv", "uuid"}
HASHES = re.compile(r"""\bsha256\(|, "sha256"\)""")
HIDDEN_CLOCKS = re.compile(r"(^|\.)(time\.\w+|datetime\.(now|utcnow|today)|date\.today)$")


def product_files() -> list[Path]:
    return sorted(file for folder in FOLDERS for file in (ROOT / folder).rglob("*.py"))


def pure_files() -> list[Path]:
    veen = ROOT / "veen"
    return sorted(f for f in veen.rglob("*.py") if f.relative_to(veen).parts[0] not in EDGES)


def name_of(file: Path) -> str:
    return file.relative_to(ROOT).as_posix()


def long_functions(source: str) -> list[str]:
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
    functions = [node for node in ast.walk(ast.parse(source)) if isinstance(node, kinds)]
    return [
        node.name
        for node in functions
        if (node.end_lineno or 0) - node.lineno + 1 > MAX_FUNCTION_LINES
    ]


def names_used(source: str) -> Iterator[str]:
    """Every imported name and every dotted name of a file, written out."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Attribute):
            yield ast.unparse(node)


def hidden_inputs(source: str) -> list[str]:
    """What a file would read beside its arguments: clock, chance, environment."""
    return [
        name
        for name in names_used(source)
        if HIDDEN_WORDS & set(name.split(".")) or HIDDEN_CLOCKS.search(name)
    ]


def test_no_file_is_too_long() -> None:
    sizes = {name_of(file): len(file.read_text().splitlines()) for file in product_files()}
    assert {name: size for name, size in sizes.items() if size > MAX_FILE_LINES} == {}


def test_no_function_is_too_long() -> None:
    result = {name_of(file): long_functions(file.read_text()) for file in product_files()}
    assert {name: functions for name, functions in result.items() if functions} == {}


def test_one_file_hashes() -> None:
    """And the standalone verifier, which may share no code with anything."""
    result = [name_of(f) for f in product_files() if HASHES.search(f.read_text())]
    assert result == ["bridge/standalone_verifier.py", "veen/digest.py"]


def test_packages_say_nothing_when_they_are_imported() -> None:
    result = [name_of(f) for f in product_files() if f.name == "__init__.py" and f.read_bytes()]
    assert result == []


def test_every_package_is_typed() -> None:
    assert [name for name in PACKAGES if not (ROOT / name / "py.typed").exists()] == []


def test_pure_modules_depend_on_their_arguments_alone() -> None:
    result = {name_of(file): hidden_inputs(file.read_text()) for file in pure_files()}
    assert {name: inputs for name, inputs in result.items() if inputs} == {}
    assert len(result) > 30


@pytest.mark.parametrize(
    "source",
    [
        "import random",
        "import secrets",
        "from os import urandom",
        "from os import environ",
        "import os\nos.environ['A']",
        "import os\nos.getenv('A')",
        "import os\nkey = os.urandom(32)",
        "import time\ntime.time()",
        "from time import time",
        "import time\nnow = time.monotonic()",
        "from datetime import datetime\ndatetime.now()",
        "import datetime\ndatetime.datetime.utcnow()",
        "from datetime import date\ndate.today()",
        "from nacl.utils import random",
        "from nacl import bindings\nbindings.randombytes(32)",
        "import uuid",
    ],
)
def test_the_check_of_pure_modules_finds(source: str) -> None:
    assert hidden_inputs(source)


@pytest.mark.parametrize(
    "source",
    [
        '"""Not at random, nor by datetime.now or os.environ."""',
        "from datetime import datetime\ndatetime.fromtimestamp(0)",
        "def f(time: int) -> int:\n    return time",
        "import os.path",
    ],
)
def test_the_check_of_pure_modules_lets_pass(source: str) -> None:
    assert hidden_inputs(source) == []


@pytest.mark.parametrize(("lines", "is_long"), [(60, False), (61, True)])
def test_the_check_of_functions_counts_every_line(lines: int, is_long: bool) -> None:
    source = "def f() -> None:\n" + "    pass\n" * (lines - 1)
    assert bool(long_functions(source)) == is_long


def test_pyspark_runs_on_its_own_jars() -> None:
    (jar,) = (Path(pyspark.__file__).parent / "jars").glob("spark-core_*.jar")
    assert jar.stem.rsplit("-", 1)[1] == pyspark.__version__


@pytest.mark.parametrize("name", PACKAGES)
def test_the_package_is_ours(name: str) -> None:
    result = import_module(name).__file__
    assert result is not None
    assert Path(result).resolve().is_relative_to(ROOT / name)


def is_importable(name: str, cwd: Path) -> bool:
    code = f"import importlib.util, sys; sys.exit(importlib.util.find_spec({name!r}) is None)"
    environ = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    run = subprocess.run([sys.executable, "-c", code], cwd=cwd, env=environ, check=False)
    return run.returncode == 0


@pytest.mark.parametrize("name", ["tests", "dags", "plugins", "bench", "docs"])
def test_no_other_folder_of_the_repository_is_importable(name: str, tmp_path: Path) -> None:
    assert not is_importable(name, tmp_path)


def test_the_product_is_importable_from_anywhere(tmp_path: Path) -> None:
    assert is_importable("veen", tmp_path)
