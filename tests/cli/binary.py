"""The real ``veen``, run in an empty home: as a process, or within this one where many are due."""

from __future__ import annotations

import io
import os
import socket
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout
from contextvars import copy_context
from dataclasses import dataclass
from pathlib import Path
from unittest import mock

from cli.main import main

VEEN = Path(sys.executable).with_name("veen")
OPEN = ("--admission", "open", "--reads", "open", "--workers", "1")


@dataclass(frozen=True)
class Done:
    code: int
    out: str
    err: str


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def environment(home: Path, **more: str) -> dict[str, str]:
    """Nothing of whoever runs the tests: a home, and where the program lies."""
    return {
        "HOME": str(home),
        "PATH": f"{VEEN.parent}:/usr/bin:/bin",
        "LANG": "C.UTF-8",
        "COLUMNS": "100",
        **more,
    }


def veen(*arguments: object, cwd: Path, stdin: bytes = b"", **more: str) -> Done:
    """A command, to its end."""
    done = subprocess.run(
        [VEEN, *map(str, arguments)],
        cwd=cwd,
        env=environment(cwd, **more),
        input=stdin,
        capture_output=True,
        check=False,
        timeout=120,
    )
    return Done(done.returncode, done.stdout.decode(), done.stderr.decode())


def called(*arguments: object, cwd: Path, stdin: bytes = b"", **more: str) -> Done:
    """The same through the entry point, without a process of its own."""
    out, err = io.StringIO(), io.StringIO()
    before, umask = Path.cwd(), os.umask(0o077)
    words = ["veen", *map(str, arguments)]
    said = io.TextIOWrapper(io.BytesIO(stdin))
    with (
        mock.patch.object(sys, "argv", words),
        mock.patch.object(sys, "stdin", said),
        mock.patch.dict(os.environ, environment(cwd, **more), clear=True),
        redirect_stdout(out),
        redirect_stderr(err),
    ):
        os.chdir(cwd)
        try:
            copy_context().run(main)
        except SystemExit as ended:
            return Done(int(ended.code or 0), out.getvalue(), err.getvalue())
        finally:
            os.chdir(before)
            os.umask(umask)
    raise AssertionError(f"{words} did not end")


def end_hub(cwd: Path, name: str = "hub") -> None:
    """Whatever happened, no hub of ours remains."""
    if (cwd / name / "run" / "hub.pid").exists():
        done = veen("hub", "stop", "--data-dir", name, cwd=cwd)
        assert done.code == 0, done.err
