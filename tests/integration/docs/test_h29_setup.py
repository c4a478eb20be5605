"""H29: what ``make setup`` runs: uv held to its hash, and the certificates of the system."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from support.paths import ROOT


def planned(tmp_path: Path, **environment: str) -> list[str]:
    """The commands of a first set-up, not run."""
    done = subprocess.run(
        ["make", "--no-print-directory", "-n", f"VENV={tmp_path / 'venv'}", "setup"],
        cwd=ROOT, env=os.environ | environment, capture_output=True, text=True, check=True,
    )  # fmt: skip
    return done.stdout.replace("\\\n", " ").splitlines()


def test_h29_uv_is_installed_by_the_hashes_of_the_lock(tmp_path: Path) -> None:
    lines = planned(tmp_path)
    (command,) = [line for line in lines if "/uv.lock" in line and line.startswith("sed")]
    subprocess.run(["mkdir", "-p", tmp_path / "venv"], check=True)
    subprocess.run(["bash", "-c", command], cwd=ROOT, check=True)
    pinned = (tmp_path / "venv" / "uv.lock").read_text()
    assert pinned.startswith("uv==")
    assert pinned.count("uv==") == 1
    assert "--hash=sha256:" in pinned
    assert not pinned.rstrip().endswith("\\")
    (pip,) = [line for line in lines if " -m pip install" in line]
    assert "--require-hashes" in pip
    assert "/uv.lock" in pip
    assert not [line for line in lines if "command -v uv" in line]


def test_h29_certificates_of_the_system_are_used(tmp_path: Path) -> None:
    own = tmp_path / "proxy-ca.pem"
    own.write_text("")
    lines = planned(tmp_path, SSL_CERT_FILE=str(own), PIP_CERT="")
    (sync,) = [line for line in lines if " pip sync" in line]
    assert "UV_SYSTEM_CERTS=true" in sync
    (pip,) = [line for line in lines if " -m pip install" in line]
    assert f"PIP_CERT={own}" in pip
