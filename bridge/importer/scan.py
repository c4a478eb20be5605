"""The scan hook: a program of the zone's own that looks at a bundle before it is let in.

It is given the path of the bundle in the clear. Exit 0 lets it pass; anything else, or taking too
long, blocks it.
"""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from bridge.carrier.span import Span, copy_blocks
from bridge.printable import printable

_OUTPUT: Final = 2000
_PATH: Final = {"PATH": "/usr/local/bin:/usr/bin:/bin", "LC_ALL": "C"}


@dataclass(frozen=True, slots=True)
class Scan:
    passed: bool
    told: str


def scan(command: Sequence[str], content: Span, folder: Path, timeout_sec: int) -> Scan:
    """Run the hook on a copy of the content, which is gone afterwards."""
    path = folder / "bundle.cbor"
    with path.open("xb") as file:
        copy_blocks(content.blocks(), file)
    try:
        return _run([*command, os.fspath(path)], folder, timeout_sec)
    finally:
        path.unlink()


def _run(command: Sequence[str], folder: Path, timeout_sec: int) -> Scan:
    with tempfile.TemporaryFile(dir=folder) as output:
        try:
            process = subprocess.Popen(  # noqa: S603 - the operator's own program
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd=folder,
                env=_PATH,
                start_new_session=True,
            )
        except OSError as error:
            return Scan(False, f"{command[0]} cannot be run: {error.strerror}")
        code = _wait(process, timeout_sec)
        output.seek(0)
        said = printable(output.read(_OUTPUT).decode("utf-8", "replace"), _OUTPUT)
    if code is None:
        return Scan(False, f"the scan did not end within {timeout_sec} s: {said}")
    if code != 0:
        return Scan(False, f"the scan ended with {code}: {said}")
    return Scan(True, said)


def _wait(process: subprocess.Popen[bytes], timeout_sec: int) -> int | None:
    """How it ended; None when it had to be ended, with all that it had started."""
    try:
        return process.wait(timeout_sec)
    except subprocess.TimeoutExpired:
        return None
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
