"""Extras of the package: what is in each, and that commands and version agree with it."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from importlib.metadata import packages_distributions, version
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml  # type: ignore[import-untyped]
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from cli.extras import EXTRAS, NEEDS, MissingExtra, checked
from cli.main import app
from support.paths import ROOT
from veen.version import VERSION

PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
OFFERED: dict[str, list[str]] = PROJECT["optional-dependencies"]
# What the project was asked to be built with.
ASKED = (
    "apache-airflow", "apache-airflow-providers-apache-spark", "flask", "gunicorn", "cbor2",
    "pynacl", "cryptography", "pyhpke", "boto3", "pyspark", "pytest",
)  # fmt: skip


def names(extra: str) -> set[str]:
    """The distributions of an extra, those of the extras in it too."""
    result = set()
    for requirement in map(Requirement, OFFERED[extra]):
        if requirement.name == PROJECT["name"]:
            result |= {name for inner in requirement.extras for name in names(inner)}
        else:
            result.add(canonicalize_name(requirement.name))
    return result


def base() -> set[str]:
    return {canonicalize_name(Requirement(line).name) for line in PROJECT["dependencies"]}


def test_the_extras_are_those_of_the_documents() -> None:
    expected = {"hub", "recorder", "bridge", "spark", "airflow", "s3", "all", "dev"}
    assert set(OFFERED) == expected
    table = (ROOT / "docs" / "install.md").read_text()
    assert set(re.findall(r"^\| `veen\[(\w+)\]` \|", table, re.MULTILINE)) == expected


def test_the_development_extra_has_everything() -> None:
    everything = {name for extra in OFFERED for name in names(extra)} | base()
    assert names("dev") | base() == everything
    assert everything >= set(ASKED)
    assert names("all") | base() >= set(ASKED) - {"pytest"}


@pytest.mark.parametrize("extra", EXTRAS)
def test_the_modules_of_an_extra_are_in_its_distributions(extra: str) -> None:
    owners = packages_distributions()
    for module in EXTRAS[extra]:
        distributions = {canonicalize_name(name) for name in owners[module]}
        if module != "botocore":
            assert distributions & names(extra), module
        assert not distributions & base(), module


@pytest.mark.parametrize("command", NEEDS)
def test_a_command_that_needs_an_extra_exists(command: str) -> None:
    here: Any = typer.main.get_command(app)
    for word in command.split()[1:]:
        here = here.commands[word]
    assert set(NEEDS[command]) <= set(EXTRAS)


def test_a_module_that_is_absent_and_in_no_extra_is_a_bug() -> None:
    with pytest.raises(ModuleNotFoundError), checked("veen version"):
        raise ModuleNotFoundError("no module named x", name="x")


def test_a_module_that_an_installed_package_fails_to_import_is_a_bug() -> None:
    """Flask is here: that one of its modules is not found says nothing of an extra."""
    with pytest.raises(ModuleNotFoundError), checked("veen version"):
        raise ModuleNotFoundError("no module named flask.x", name="flask.x")


def test_an_error_of_a_command_stays_what_it_is() -> None:
    with pytest.raises(MissingExtra, match="theirs"), checked("veen version"):
        raise MissingExtra("theirs")


def test_the_version_is_written_in_one_place() -> None:
    assert version("veen") == VERSION
    files = subprocess.run(
        ["git", "ls-files", "*.py", "*.toml", "*.html", "docker", "Makefile", ":!tests"],
        cwd=ROOT, check=True, capture_output=True, text=True,
    ).stdout.splitlines()  # fmt: skip
    literal = re.compile(rf"(?<![\d.]){re.escape(VERSION)}(?![\d.])")
    assert len(files) > 300
    assert [name for name in files if literal.search((ROOT / name).read_text())] == [
        "veen/version.py"
    ]


@pytest.mark.parametrize("page", ["CHANGELOG.md", "SECURITY.md"])
def test_documents_tell_of_this_version(page: str) -> None:
    assert re.search(rf"\b{re.escape(VERSION)}\b", (ROOT / page).read_text())


def test_hooks_before_a_commit_run_the_tools_of_make_check() -> None:
    config = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())
    (local,) = config["repos"]
    assert local["repo"] == "local"
    commands = [hook["entry"].split() for hook in local["hooks"]]
    assert {command[0] for command in commands} == {
        f".venv/bin/{name}" for name in ("ruff", "mypy", "lint-imports")
    }
    assert all(
        Path(sys.executable).with_name(Path(command[0]).name).exists() for command in commands
    )
    plan = ["make", "--no-print-directory", "-n", "check"]
    check = subprocess.run(plan, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    assert all(command[0] in check for command in commands)
