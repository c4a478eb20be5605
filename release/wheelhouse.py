"""Gather all that an installation without a network needs: wheelhouse.py DIRECTORY EXTRA,EXTRA

The packages and their hashes are those of requirements.lock. What the lock has as source only is
built into a wheel here. The directory then holds, for this Python and this platform:

    wheels/            the locked packages, and the project itself
    requirements.txt   each of them with the hash of its wheel
    install.sh         verifies the hashes and installs with pip --no-index
    SHA256SUMS         the hashes of all these files
"""

from __future__ import annotations

import hashlib
import re
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
LOCK = ROOT / "requirements.lock"
SUMS = "SHA256SUMS"
_HASH = re.compile(r"--hash=\S+")
_PIN = re.compile(r"[A-Za-z0-9._-]+==\S+")


def main(target: Path, extras: list[str]) -> None:
    """Replace ``target`` once all is gathered; an interrupted run leaves it as it was."""
    if target.exists() and not (target / SUMS).exists():
        sys.exit(f"{target}: expected an earlier wheelhouse or nothing, got no {SUMS} in it")
    partial = target.with_name(f"{target.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    wheels = partial / "wheels"
    wheels.mkdir(parents=True)
    _gather(wheels, extras)
    finish(partial)
    shutil.rmtree(target, ignore_errors=True)
    partial.rename(target)
    _say(f"{target} is complete; sha256 of {SUMS}: {_digest(target / SUMS)}")


def finish(folder: Path) -> None:
    """Write the requirements of the gathered wheels, the installer, and the hashes of all."""
    wheels = sorted((folder / "wheels").iterdir())
    (folder / "requirements.txt").write_text("".join(map(_requirement, wheels)))
    _write_installer(folder / "install.sh")
    files = sorted(file for file in folder.rglob("*") if file.is_file())
    sums = [f"{_digest(file)}  {file.relative_to(folder)}\n" for file in files]
    (folder / SUMS).write_text("".join(sums))


def _gather(wheels: Path, extras: list[str]) -> None:
    locked = wheels.with_name("locked.txt")
    lines = list(locked_lines(_resolve(extras)))
    locked.write_text("".join(lines))
    _say(f"gathering {len(lines)} packages for {', '.join(extras)}")
    pip = (sys.executable, "-m", "pip", "wheel", "--quiet", "--disable-pip-version-check")
    given = ("--requirement", locked, "--wheel-dir", wheels)
    _run(*pip, "--no-deps", "--require-hashes", *given)
    locked.unlink()
    _run(sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", wheels)


def _resolve(extras: list[str]) -> list[str]:
    """The pins of the lock that this Python needs for ``extras``."""
    uv = (Path(sys.executable).with_name("uv"), "pip", "compile", "--quiet", "--no-header")
    options = [word for extra in extras for word in ("--extra", extra)]
    given = ("--python", sys.executable, "--constraint", LOCK, ROOT / "pyproject.toml")
    return _PIN.findall(_run(*uv, "--no-annotate", *options, *given))


def locked_lines(pins: list[str]) -> Iterator[str]:
    """The pins with the hashes that the lock has for them."""
    lines = LOCK.read_text().replace("\\\n", "").splitlines()
    locked = {match[0]: line for line in lines if (match := _PIN.match(line))}
    absent = [pin for pin in pins if pin not in locked]
    if absent:
        sys.exit(f"expected {', '.join(absent)} in {LOCK.name}, got no such line: run make lock")
    for pin in pins:
        yield " ".join([pin, *_HASH.findall(locked[pin])]) + "\n"


def _requirement(wheel: Path) -> str:
    name, version = wheel.name.split("-")[:2]
    return f"{name}=={version} --hash=sha256:{_digest(wheel)}\n"


def _write_installer(file: Path) -> None:
    text = (ROOT / "release" / "install.sh").read_text()
    text = text.replace("@PYTHON@", f"{sys.version_info.major}.{sys.version_info.minor}")
    file.write_text(text.replace("@PLATFORM@", sysconfig.get_platform()))
    file.chmod(0o755)


def _digest(file: Path) -> str:
    with file.open("rb") as opened:
        return hashlib.file_digest(opened, hashlib.sha256).hexdigest()


def _run(*command: str | Path) -> str:
    return subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True).stdout


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main(Path(sys.argv[1]).absolute(), sys.argv[2].split(","))
