"""The audit as a Spark job: its file is handed to spark-submit, its signed report is read back."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from cli.failure import Refused
from spark_jobs import verify_log
from spark_jobs.audit_terms import AuditTerms
from spark_jobs.signer import PASSPHRASE
from veen.audit.report import SignedReport

_PROGRAM: Final = "spark-submit"


@dataclass(frozen=True, slots=True, kw_only=True)
class Submission:
    where: tuple[str, ...]
    terms: AuditTerms
    master: str
    hashes_only: bool
    sign_with: Path | None
    passphrase: bytes | None = field(repr=False)


def submit(wanted: Submission) -> SignedReport:
    """Run the job to its end; what it was not able to audit is told as it told it."""
    with tempfile.TemporaryDirectory(prefix="veen-audit-") as folder:
        terms, report = Path(folder) / "terms.json", Path(folder) / "report.json"
        terms.write_bytes(wanted.terms.to_json())
        done = subprocess.run(  # noqa: S603 - our own file, no shell
            [*_command(wanted), "--terms", str(terms), "--report", str(report)],
            env=_environment(wanted),
            capture_output=True,
            check=False,
        )
        if not report.exists():
            raise Refused(f"{_PROGRAM} ended with {done.returncode}: {_last_line(done.stderr)}")
        found = SignedReport.from_json(report.read_bytes())
    found.verify(found.signed_by)
    return found


def _command(wanted: Submission) -> Iterator[str]:
    program = shutil.which(_PROGRAM) or shutil.which(_PROGRAM, path=Path(sys.executable).parent)
    if program is None:
        raise Refused(f"{_PROGRAM} is not on the PATH")
    yield from (program, "--master", wanted.master, "--conf", "spark.ui.enabled=false")
    yield from (verify_log.__file__, *wanted.where)
    if wanted.hashes_only:
        yield "--hashes-only"
    if wanted.sign_with is not None:
        yield from ("--sign-with", str(wanted.sign_with.absolute()))


def _environment(wanted: Submission) -> dict[bytes, bytes]:
    """Ours, with the Python that runs this; a passphrase stands here, never in the arguments."""
    python = os.fsencode(sys.executable)
    found = {b"PYSPARK_PYTHON": python, b"PYSPARK_DRIVER_PYTHON": python, **os.environb}
    if wanted.master.startswith("local"):
        found.setdefault(b"SPARK_LOCAL_IP", b"127.0.0.1")
    if wanted.passphrase is not None:
        found[PASSPHRASE] = wanted.passphrase
    return found


def _last_line(raw: bytes) -> str:
    """What the job itself said, or else the last thing that anyone said."""
    lines = raw.decode(errors="replace").strip().splitlines() or ["it said nothing"]
    own = [line for line in lines if line.startswith("verify_log: ")]
    return (own or lines)[-1]
