"""A bundle and a carrier that were made without this library."""

from __future__ import annotations

import json
import subprocess
import sys
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest

from bridge.bundle import BundleLimits, read_events, survey, write_bundle
from bridge.carrier.format import CarrierLedger, Preset
from bridge.carrier.writer import Content, stage
from bridge.trust import TrustStore, pin_exporter, pin_hub
from bridge.verify import Continuity, verify_bundle
from support.paths import ROOT, VECTORS
from veen.crypto import SigningKey
from veen.hub_identity import HubIdentity


@pytest.fixture(scope="module")
def vector() -> dict[str, Any]:
    document: dict[str, Any] = json.loads((VECTORS / "bundle.json").read_text())
    return document


@pytest.fixture
def trust_dir(vector: dict[str, Any], tmp_path: Path) -> Path:
    identity = HubIdentity.decode(bytes.fromhex(vector["hub_identity"]))
    (tmp_path / "trust").mkdir()
    pin_hub(tmp_path / "trust", identity, bytes.fromhex(vector["hub_identity_sig"]))
    exporter = SigningKey(bytes.fromhex(vector["exporter_seed"]))
    pin_exporter(tmp_path / "trust", "vector", exporter.public)
    return tmp_path / "trust"


def test_the_vectors_are_what_their_script_makes() -> None:
    script = [sys.executable, "-B", str(VECTORS / "make_bundle.py"), "--check"]
    subprocess.run(script, check=True)


def test_the_bundle_is_valid(vector: dict[str, Any], trust_dir: Path) -> None:
    raw = bytes.fromhex(vector["bundle"])
    result = verify_bundle(BytesIO(raw), TrustStore.read(trust_dir), None)
    assert result.header.bundle_id == bytes.fromhex(vector["bundle_id"])
    assert (result.with_metadata, result.unopened, result.continuity) == (2, 1, Continuity.UNTESTED)


def test_writing_its_parts_gives_the_same_bytes(vector: dict[str, Any]) -> None:
    raw = bytes.fromhex(vector["bundle"])
    result = survey(BytesIO(raw), BundleLimits())
    file = BytesIO()
    written = write_bundle(file, result.header, read_events(BytesIO(raw), result), result.proof)
    assert file.getvalue() == raw
    assert written == result.header


def test_carrying_it_gives_the_same_files(vector: dict[str, Any], tmp_path: Path) -> None:
    raw = bytes.fromhex(vector["bundle"])
    (tmp_path / "bundle").write_bytes(raw)
    (tmp_path / "staging").mkdir()
    header = survey(BytesIO(raw), BundleLimits()).header
    ledger = CarrierLedger(bridge_id=bytes.fromhex(vector["bridge_id"])).with_bundle(header)
    (bag,) = stage(
        Content(file=tmp_path / "bundle", ledger=ledger),
        Preset.ANY.packing(),
        SigningKey(bytes.fromhex(vector["exporter_seed"])),
        tmp_path / "staging",
    ).bags
    result = {str(path.relative_to(bag)): path.read_bytes() for path in files_of(bag)}
    assert result == {name: bytes.fromhex(item) for name, item in vector["carrier"].items()}


def files_of(bag: Path) -> list[Path]:
    return [path for path in bag.rglob("*") if path.is_file()]


@pytest.mark.parametrize(
    ("change", "code", "verdict"), [(False, 0, "valid"), (True, 1, "E.SIG/VOLUME")]
)
def test_the_standalone_verifier_runs_by_itself(
    vector: dict[str, Any], tmp_path: Path, trust_dir: Path, change: bool, code: int, verdict: str
) -> None:
    bag = tmp_path / "bag"
    (bag / "data").mkdir(parents=True)
    for name, content in vector["carrier"].items():
        (bag / name).write_bytes(bytes.fromhex(content))
    if change:
        with (bag / "data" / "v001.agv").open("r+b") as file:
            file.seek(500)
            file.write(b"\xff\xfe")
    alone = tmp_path / "standalone_verifier.py"
    alone.write_bytes((ROOT / "bridge" / "standalone_verifier.py").read_bytes())
    # Isolated: nothing of this repository can be imported, the current directory included.
    command = [sys.executable, "-I", str(alone), str(trust_dir), str(bag)]
    run = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=False)
    assert (run.returncode, run.stdout.splitlines()[-1]) == (code, verdict)


def test_the_standalone_verifier_is_short_and_stands_alone() -> None:
    text = (ROOT / "bridge" / "standalone_verifier.py").read_text()
    assert len(text.splitlines()) <= 400
    imported = {line.split()[1].split(".")[0] for line in text.splitlines() if is_import(line)}
    assert imported - set(sys.stdlib_module_names) == {"nacl"}


def is_import(line: str) -> bool:
    return line.lstrip().startswith(("import ", "from "))


@pytest.mark.parametrize("argv", [[], ["nowhere"], ["nowhere", "bag"]], ids=str)
def test_the_standalone_verifier_says_how_it_is_called(argv: list[str]) -> None:
    path = ROOT / "bridge" / "standalone_verifier.py"
    command = [sys.executable, "-I", str(path), *argv]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    assert run.returncode == 2
    assert "TRUST PLACE" in run.stderr
