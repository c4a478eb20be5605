"""The real ``veen``, run in an empty home: as a process, or within this one where many are due."""

from __future__ import annotations

import io
import json
import os
import signal
import socket
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout
from contextvars import Context
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO
from unittest import mock

from cli.main import main
from support.paths import SUPPORT

VEEN = Path(sys.executable).with_name("veen")
OPEN = ("--admission", "open", "--reads", "open", "--workers", "1")


@dataclass(frozen=True)
class Done:
    code: int
    out: str
    err: str


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


class Forking:
    """Runs commands as forks of one process that has loaded them all; ends with it."""

    def __init__(self, folder: Path) -> None:
        self._services = str(folder / "door")
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as services:
            services.bind(self._services)
            services.listen(8)
            number = services.fileno()
            self._server = subprocess.Popen(
                [sys.executable, SUPPORT / "cli" / "fork_server.py", str(number)],
                pass_fds=(number,),
            )

    def veen(self, *arguments: object, cwd: Path, stdin: bytes = b"", **more: str) -> Done:
        """A command, to its end."""
        words = list(map(str, arguments))
        request = {"words": words, "cwd": str(cwd), "env": environment(cwd, **more)}
        with (
            socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as line,
            TemporaryFile() as given,
            TemporaryFile() as out,
            TemporaryFile() as err,
        ):
            given.write(stdin)
            given.seek(0)
            line.settimeout(120)
            line.connect(self._services)
            streams = [item.fileno() for item in (given, out, err)]
            socket.send_fds(line, [json.dumps(request).encode()], streams)
            code = int(line.recv(16) or -signal.SIGKILL)
            return Done(code, _whole(out), _whole(err))

    def end(self) -> None:
        self._server.kill()
        self._server.wait()


def _whole(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read().decode()


def called(*arguments: object, cwd: Path, stdin: bytes = b"", **more: str) -> Done:
    """The same through the entry point, without a process of its own."""
    out, err = io.StringIO(), io.StringIO()
    before, umask = Path.cwd(), os.umask(0o077)
    words = ["veen", *map(str, arguments)]
    given = io.TextIOWrapper(io.BytesIO(stdin))
    with (
        mock.patch.object(sys, "argv", words),
        mock.patch.object(sys, "stdin", given),
        mock.patch.dict(os.environ, environment(cwd, **more), clear=True),
        redirect_stdout(out),
        redirect_stderr(err),
    ):
        os.chdir(cwd)
        try:
            Context().run(main)
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
