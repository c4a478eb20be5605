"""A wheel of the project, and a base installation of it beside the environment of the tests."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable
from email import message_from_bytes
from importlib.metadata import Distribution, distribution
from pathlib import Path
from zipfile import ZipFile

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from support.paths import ROOT

BIN = Path(sys.executable).parent
Run = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dist")
    build = [sys.executable, "-m", "hatchling", "build", "--target", "wheel"]
    subprocess.run([*build, "--directory", folder], cwd=ROOT, check=True, capture_output=True)
    (built,) = folder.glob("*.whl")
    return built


@pytest.fixture(scope="session")
def base(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment with the wheel and what its metadata requires without an extra."""
    environment = tmp_path_factory.mktemp("base") / "venv"
    uv: list[str | Path] = [BIN / "uv", "--quiet", "--offline", "--no-config"]
    subprocess.run([*uv, "venv", "--python", sys.executable, environment], check=True)
    (packages,) = environment.glob("lib/python3.*/site-packages")
    for required in closure(requirements(wheel)):
        copy(required, packages)
    python = environment / "bin" / "python"
    subprocess.run([*uv, "pip", "install", "--no-deps", "--python", python, wheel], check=True)
    return environment


@pytest.fixture
def installed_veen(base: Path, tmp_path: Path) -> Run:
    """Runs the command of the base installation, without the environment of the tests."""

    def run(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [base / "bin" / "veen", *arguments],
            cwd=tmp_path, env={"HOME": str(tmp_path), "PATH": "/usr/bin:/bin", "COLUMNS": "100"},
            capture_output=True, text=True, check=False, timeout=120,
        )  # fmt: skip

    return run


def requirements(wheel: Path) -> list[Requirement]:
    with ZipFile(wheel) as opened:
        (name,) = [name for name in opened.namelist() if name.endswith(".dist-info/METADATA")]
        metadata = message_from_bytes(opened.read(name))
    return [Requirement(line) for line in metadata.get_all("Requires-Dist", [])]


def closure(required: list[Requirement]) -> list[Distribution]:
    """The installed distributions that satisfy requirements, and theirs."""
    seen: dict[tuple[str, str], Distribution] = {}
    queue = [(requirement, "") for requirement in required]
    while queue:
        requirement, extra = queue.pop()
        if requirement.marker is not None and not requirement.marker.evaluate({"extra": extra}):
            continue
        installed = distribution(requirement.name)
        for inner in ("", *requirement.extras):
            key = (canonicalize_name(requirement.name), inner)
            if key not in seen:
                seen[key] = installed
                queue += [(Requirement(line), inner) for line in installed.requires or ()]
    return list({name: installed for (name, _), installed in seen.items()}.values())


def copy(installed: Distribution, packages: Path) -> None:
    for file in installed.files or ():
        if ".." not in file.parts and "__pycache__" not in file.parts:
            target = packages / file
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(str(file.locate()), target)
