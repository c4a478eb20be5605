"""H36: the standalone verifier says how it is called and what it verified, and lies on media."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest

from bridge.carrier.medium import SOURCE, BadMedium, put_verifier, verifier_name
from bridge.carrier.writer import StagedCarrier
from bridge.errors import words
from bridge.exporter.deliver import Media, deliver
from support.bridge import bridge_world
from support.paths import ROOT


def run(*words: str | Path, alone: bool = False, file: Path = SOURCE) -> Any:
    """Isolated from this repository; ``alone`` without any installed package."""
    flags = ["-I", "-S"] if alone else ["-I"]
    command = [sys.executable, *flags, str(file), *map(str, words)]
    result = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    output = result.stdout + result.stderr
    assert "Traceback" not in output
    assert "\\n" not in output
    return result


@pytest.fixture
def medium(carrier_factory: Any, grown_world: Any) -> Path:
    """Two carriers, as an exporter writes them."""
    result: Path = carrier_factory.new()
    for first, last in ((2, 4), (5, 8)):
        (bag,) = carrier_factory.carry(grown_world.bundle(first, last))
        staged = StagedCarrier(bridge_world.carrier_of(bag), (bag,))
        deliver(staged, Media(roots=(result,), medium_id="stick"))
    return result


def test_h36_help_is_help_and_a_wrong_call_is_reported_in_a_line() -> None:
    result = run("--help")
    assert result.returncode == 0
    assert "[--hub-identity FILE] TRUST PLACE [PLACE ...]\n\nTRUST is a directory" in result.stdout
    for argv in ((), ("trust",), ("--nothing",)):
        result = run(*argv)
        assert result.returncode == 2
        assert result.stderr.startswith("usage: standalone_verifier.py [-h] [--hub-identity FILE]")


def test_h36_a_missing_library_is_named(carrier_factory: Any) -> None:
    for argv in ((), ("--help",), (carrier_factory.trust_dir, carrier_factory.root)):
        result = run(*argv, alone=True)
        assert result.returncode == 2
        assert result.stderr.splitlines()[-1] == "PyNaCl is missing: run pip install pynacl"


def test_h36_a_trust_store_that_is_none_gives_no_verdict(
    carrier_factory: Any, medium: Path
) -> None:
    for trust in (carrier_factory.root / "nowhere", medium / verifier_name()):
        result = run(trust, medium)
        assert result.returncode == 2
        assert "no verdict" in result.stderr
        assert "valid" not in result.stdout
    # Nobody is trusted in an empty one.
    result = run(carrier_factory.new(), medium)
    assert (result.returncode, result.stdout.splitlines()[-1]) == (1, "E.AUTH/SIGNER")


def test_h36_the_root_of_a_medium_is_verified_by_the_file_that_lies_on_it(
    carrier_factory: Any, grown_world: Any, medium: Path
) -> None:
    result = run(carrier_factory.trust_dir, medium, file=medium / verifier_name())
    assert result.returncode == 0, result.stdout
    lines = result.stdout.splitlines()
    assert lines[-2:] == ["2 of 2 carriers are valid", "valid"]
    for first, last in ((2, 4), (5, 8)):
        bundle_id = bridge_world.bundle_id_of(grown_world.bundle(first, last))
        assert f"stream: {bridge_world.STREAM}, events {first} to {last}" in lines
        assert f"words: {words(bundle_id)}" in lines
    assert f"hub: {bridge_world.IDENTITY.hub_id.hex()}" in lines
    assert f"signer: z1 ({bridge_world.EXPORTER.public.hex()})" in lines
    assert any(line.startswith("verified: all bytes; signatures") for line in lines)
    assert any(line.startswith("not verified: other ranges") for line in lines)


def test_h36_each_carrier_of_a_medium_has_its_verdict(carrier_factory: Any, medium: Path) -> None:
    first, second = sorted((medium / "agb0").iterdir())
    volume = next((first / "data").iterdir())
    raw = bytearray(volume.read_bytes())
    raw[200] ^= 1
    volume.write_bytes(raw)
    (medium / "agb0" / "\u00e9").mkdir()
    result = run(carrier_factory.trust_dir, medium)
    lines = result.stdout.splitlines()
    assert (result.returncode, lines[-2]) == (1, "1 of 3 carriers are valid")
    assert f"E.SIG/VOLUME: {first}" in lines
    assert f"valid: {second}" in lines
    assert any(line.startswith("E.SIZE/INCOMPLETE: ") and "\\xe9" in line for line in lines)
    shutil.rmtree(medium / "agb0")
    assert run(carrier_factory.trust_dir, medium).returncode == 1


UNPRIVILEGED = """import locale, os, runpy, shutil, sys
main = runpy.run_path(sys.argv[1])["main"]
os.geteuid() or os.seteuid(65534)
sys.exit(main(sys.argv[2:]))"""


def test_h08_a_bag_that_cannot_be_read_keeps_no_other_from_its_verdict(
    carrier_factory: Any, medium: Path
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        place.chmod(0o755)
        shutil.copytree(medium, place / "medium")
        shutil.copytree(carrier_factory.trust_dir, place / "trust")
        for path in place.rglob("*"):
            path.chmod(0o755)
        (place / "medium" / "agb0" / "closed").mkdir(mode=0)
        words = [str(SOURCE), str(place / "trust"), str(place / "medium")]
        run = subprocess.run(
            [sys.executable, "-I", "-c", UNPRIVILEGED, *words],
            capture_output=True, text=True, check=False, timeout=60,
        )  # fmt: skip
    lines = run.stdout.splitlines()
    assert lines[-2:] == ["2 of 3 carriers are valid", "E.FORMAT/MEDIUM"], run.stderr
    assert run.returncode == 1


def test_h36_its_hash_is_in_the_documentation_and_in_its_name(medium: Path) -> None:
    digest = hashlib.sha256(SOURCE.read_bytes()).hexdigest()
    text = (ROOT / "docs" / "bridge-format.md").read_text()
    assert f"`{digest}`" in text, f"docs/bridge-format.md is to name the SHA-256 {digest}"
    assert (medium / f"agb0-verifier-{digest[:16]}.py").read_bytes() == SOURCE.read_bytes()


def test_h36_another_file_under_its_name_is_refused(carrier_factory: Any, grown_world: Any) -> None:
    medium = carrier_factory.new()
    (medium / verifier_name()).write_bytes(b"print('valid')\n")
    (bag,) = carrier_factory.carry(grown_world.bundle(2, 4))
    staged = StagedCarrier(bridge_world.carrier_of(bag), (bag,))
    with pytest.raises(BadMedium, match=r"got other bytes; do not run it"):
        deliver(staged, Media(roots=(medium,), medium_id="stick"))
    assert [path.name for path in medium.iterdir()] == [verifier_name()]
    (medium / verifier_name()).unlink()
    (medium / f"{verifier_name()}.part").write_bytes(b"cut off")
    put_verifier(medium)
    assert [path.name for path in medium.iterdir()] == [verifier_name()]
