"""An installation without a network: what is gathered, what is refused, and one that runs."""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

import pytest

from support.paths import ROOT

SCRIPTS = {
    "bridge": "veen bridge --help",
    # The zone is stopped by the same shell, whatever came before.
    "all": """
        airflow version
        spark-submit --version
        veen zone init --directory z --name z1 --role online --medium medium
        trap 'veen zone down --directory z' EXIT
        veen zone up --directory z
        veen zone status --directory z
    """,
}
"""What an installation with these extras is tried with."""


@pytest.fixture(scope="module")
def gather() -> ModuleType:
    """The script ``release/wheelhouse.py``."""
    spec = spec_from_file_location("wheelhouse", ROOT / "release" / "wheelhouse.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def wheelhouse(gather: ModuleType, tmp_path: Path) -> Path:
    """A directory with one file in place of a wheel, which is never looked into."""
    folder = tmp_path / "wheelhouse"
    (folder / "wheels").mkdir(parents=True)
    (folder / "wheels" / "some_package-1.0-py3-none-any.whl").write_bytes(b"bytes")
    gather.finish(folder)
    return folder


def install(wheelhouse: Path, *before: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*before, wheelhouse / "install.sh", "venv"],
        cwd=wheelhouse.parent, env={"PATH": "/usr/bin:/bin", "PYTHON": sys.executable},
        capture_output=True, text=True, check=False,
    )  # fmt: skip


def test_every_file_is_listed_with_its_hash(wheelhouse: Path) -> None:
    digest = hashlib.sha256(b"bytes").hexdigest()
    requirements = (wheelhouse / "requirements.txt").read_text()
    assert requirements == f"some_package==1.0 --hash=sha256:{digest}\n"
    sums = (wheelhouse / "SHA256SUMS").read_text().splitlines()
    files = {str(f.relative_to(wheelhouse)) for f in wheelhouse.rglob("*") if f.is_file()}
    assert {line.split("  ")[1] for line in sums} == files - {"SHA256SUMS"}
    assert f"{digest}  wheels/some_package-1.0-py3-none-any.whl" in sums


@pytest.mark.parametrize("name", ["requirements.txt", "wheels/some_package-1.0-py3-none-any.whl"])
def test_refuses_a_file_that_was_changed(wheelhouse: Path, name: str) -> None:
    with (wheelhouse / name).open("ab") as opened:
        opened.write(b"#")
    done = install(wheelhouse)
    assert done.returncode == 3
    assert f"{name}: FAILED" in done.stdout
    assert "nothing was installed" in done.stderr
    assert not (wheelhouse.parent / "venv").exists()


@pytest.mark.parametrize("name", ["SHA256SUMS", "wheels/some_package-1.0-py3-none-any.whl"])
def test_refuses_a_directory_that_is_not_complete(wheelhouse: Path, name: str) -> None:
    (wheelhouse / name).unlink()
    done = install(wheelhouse)
    assert done.returncode == 3
    assert "nothing was installed" in done.stderr
    assert not (wheelhouse.parent / "venv").exists()


def test_refuses_another_python(gather: ModuleType, wheelhouse: Path) -> None:
    script = wheelhouse / "install.sh"
    script.write_text(re.sub(r'expected="\S+', 'expected="2.7', script.read_text()))
    sums = wheelhouse / "SHA256SUMS"
    digest = hashlib.sha256(script.read_bytes()).hexdigest()
    sums.write_text(re.sub(r"\w{64}  install.sh", f"{digest}  install.sh", sums.read_text()))
    done = install(wheelhouse)
    assert done.returncode == 1
    assert "expected Python and platform 2.7 " in done.stderr
    assert not (wheelhouse.parent / "venv").exists()


def test_takes_the_hashes_of_the_lock(gather: ModuleType) -> None:
    (line,) = gather.locked_lines(["rfc8785==0.1.4"])
    hashes = re.findall(r"--hash=(\S+)", line)
    assert line.startswith("rfc8785==0.1.4 --hash=sha256:")
    assert len(hashes) >= 1
    assert all(hash_ in (ROOT / "requirements.lock").read_text() for hash_ in hashes)


def test_refuses_what_the_lock_does_not_have(gather: ModuleType) -> None:
    with pytest.raises(SystemExit, match=r"expected flask==0\.1 in requirements\.lock"):
        list(gather.locked_lines(["flask==0.1"]))


def test_does_not_replace_a_directory_that_is_no_wheelhouse(
    gather: ModuleType, tmp_path: Path
) -> None:
    (tmp_path / "letters").mkdir()
    with pytest.raises(SystemExit, match="expected an earlier wheelhouse or nothing"):
        gather.main(tmp_path / "letters", ["bridge"])
    assert (tmp_path / "letters").is_dir()


def without_network() -> list[str]:
    """What a command is run with so that it has no network but its own loopback."""
    # Root keeps the users of the host, whom PostgreSQL needs; anybody else is root of the space.
    unshare = ["unshare", "--net", *([] if os.geteuid() == 0 else ["--map-root-user"])]
    before = [*unshare, "sh", "-euc", 'ip link set lo up; exec "$@"', "sh"]
    if subprocess.run([*before, "true"], capture_output=True, check=False).returncode != 0:
        pytest.skip("the network cannot be cut: unshare --net is not permitted here")
    return before


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("extras", SCRIPTS)
def test_installs_and_runs_with_the_network_cut(tmp_path: Path, extras: str) -> None:
    cut, wheelhouse, home = without_network(), tmp_path / "wheelhouse", tmp_path / "installed"
    script = ROOT / "release" / "wheelhouse.py"
    subprocess.run([sys.executable, script, wheelhouse, extras], check=True)
    done = subprocess.run(
        [*cut, wheelhouse / "install.sh", home],
        env={"PATH": os.defpath, "PYTHON": sys.executable},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    path = f"{home / 'bin'}{os.pathsep}{os.environ['PATH']}"
    run = subprocess.run(
        [*cut, "sh", "-euc", SCRIPTS[extras]],
        cwd=tmp_path, env={"PATH": path, "HOME": str(tmp_path)},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert run.returncode == 0, run.stdout + run.stderr
