"""Submit a job to Spark, wait for it, and take the file that it wrote."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from shutil import which
from typing import Annotated, Final

import typer

import spark_jobs
from cli.extras import require
from cli.failure import INTEGRITY, OK, REFUSED, Refused
from cli.passphrase import VARIABLE
from veen.errors import Untrusted

_TOLD_LINES: Final = 5
_CHATTER: Final = re.compile(r" (INFO|WARN) ")
_SETTING: Final = re.compile(r"spark\.[^=\s]+=.*")


def _setting(given: str) -> str:
    if not _SETTING.fullmatch(given):
        raise typer.BadParameter(f"{given!r}: expected spark.NAME=VALUE")
    return given


ConfOption = Annotated[
    list[str] | None,
    typer.Option(
        "--conf",
        metavar="KEY=VALUE",
        parser=_setting,
        help="A setting of Spark, no secret; repeatable.",
    ),
]


@dataclass(frozen=True, slots=True)
class Submission:
    """A file of ``spark_jobs``, the master to run it on, and what it is told.

    ``out`` is the option that names the file it writes, ``conf`` are settings of Spark. Others see
    them in the list of processes: a secret goes by the environment, as ``_SPARK_AUTH_SECRET``.
    """

    job: str
    master: str
    arguments: tuple[str, ...]
    out: str = "--out"
    conf: tuple[str, ...] = ()


def submit(told: Submission, passphrase: bytes | None, *, accept: tuple[int, ...] = (OK,)) -> bytes:
    """What the job wrote; it must end with an accepted code."""
    with tempfile.TemporaryDirectory(prefix="veen-spark-") as folder:
        out = Path(folder) / "result"
        done = subprocess.run(  # noqa: S603 - our own program with our own words
            [*_command(told), told.out, str(out)],
            env=_environment(told, passphrase),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
        )
        said = (done.stdout + done.stderr).decode(errors="replace").splitlines()
        if done.returncode not in accept or not out.exists():
            _refuse(told.job, done.returncode, said)
        return out.read_bytes()


def _command(told: Submission) -> Iterator[str]:
    program = Path(sys.executable).with_name("spark-submit")
    if not program.exists() and which("spark-submit") is None:
        require(f"the job {told.job}", "spark")
    yield str(program) if program.exists() else "spark-submit"
    yield from ("--master", told.master)
    for setting in ("spark.ui.enabled=false", "spark.log.level=ERROR", *told.conf):
        yield from ("--conf", setting)
    (folder,) = spark_jobs.__path__
    yield str(Path(folder) / f"{told.job}.py")
    yield from told.arguments


def _environment(told: Submission, passphrase: bytes | None) -> dict[bytes, bytes]:
    """Ours; without a word on it, Spark runs our Python and speaks to this host alone."""
    found = dict(os.environb)
    found.setdefault(b"PYSPARK_PYTHON", os.fsencode(sys.executable))
    if told.master.startswith("local"):
        found.setdefault(b"SPARK_LOCAL_IP", b"127.0.0.1")
    if passphrase is not None:
        found[VARIABLE.encode()] = passphrase
    return found


def _refuse(job: str, code: int, said: list[str]) -> None:
    own = [line.removeprefix(f"{job}: ") for line in said if line.startswith(f"{job}: ")]
    if own and code == INTEGRITY:
        raise Untrusted(own[-1])
    if own and code == REFUSED:
        raise Refused(own[-1])
    words = [line for line in said if line and not _CHATTER.search(line)]
    last = " | ".join(words[-_TOLD_LINES:])
    raise Refused(f"Spark ended the job {job} with {code}: {last or 'it said nothing'}")
