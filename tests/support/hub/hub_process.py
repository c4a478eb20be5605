"""A hub run as an operator runs it, and killed as an operator never would."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import psutil  # type: ignore[import-untyped]

from support.hub.spec_client import Client
from zone.services import free_port

VEEN = [sys.executable, "-m", "cli.main"]
OPEN = ("--admission", "open", "--reads", "open")
OPEN_TOML = 'admission = "open"\nreads = "open"\n'
START_SEC = 60.0


def veen(*arguments: object, timeout: float = 90) -> subprocess.CompletedProcess[str]:
    """A command of the product, to its end."""
    command = [*VEEN, *map(str, arguments)]
    return subprocess.run(
        command,
        capture_output=True,
        text=True,
        check=False,
        timeout=timeout,
        stdin=subprocess.DEVNULL,
    )


def wait_until(happened: Callable[[], object], seconds: float, what: str) -> None:
    deadline = time.monotonic() + seconds
    while not happened():
        assert time.monotonic() < deadline, f"{what} did not happen in {seconds} s"
        time.sleep(0.01)


def is_alive(process: psutil.Process) -> bool:
    """A process that its parent has not waited for is dead all the same."""
    try:
        return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


class HubProcess:
    """One directory and port; the hub on it is started in the foreground, as our child."""

    def __init__(self, root: Path, *options: object, port: int | None = None) -> None:
        self.data = root / "data"
        self.log = root / "hub.log"
        self.options = options
        self.port = port or free_port()
        self.config: Path | None = None
        self.process: subprocess.Popen[bytes] | None = None
        self._seen: list[psutil.Process] = []
        self._clients: list[Client] = []
        root.mkdir(parents=True, exist_ok=True)

    @property
    def url(self) -> str:
        return f"{'https' if '--tls-cert' in self.options else 'http'}://127.0.0.1:{self.port}"

    @property
    def arguments(self) -> tuple[object, ...]:
        return ("--data-dir", self.data, "--listen", f"127.0.0.1:{self.port}", *self.options)

    def launch(self) -> None:
        """By the command; a hub with a ``config`` without it, which starts much sooner."""
        if self.config is None:
            self.run([*VEEN, "hub", "start", "--foreground", *map(str, self.arguments)])
            return
        options = json.dumps({"listen": f"127.0.0.1:{self.port}"})
        where = ["--data-dir", str(self.data), "--config", str(self.config), "--options", options]
        self.run([sys.executable, "-m", "hub", *where])

    def run(self, command: list[str]) -> None:
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )

    def start(self) -> HubProcess:
        self.launch()
        return self.wait_until_ready()

    def wait_until_ready(self) -> HubProcess:
        wait_until(self.is_ready, START_SEC, "a hub that answers")
        self._seen = self.processes()
        return self

    def is_ready(self) -> bool:
        assert self.process is not None
        assert self.process.poll() is None, self.log.read_text()[-3_000:]
        try:
            reply = httpx.get(f"{self.url}/readyz", verify=False, trust_env=False, timeout=5)
        except httpx.HTTPError:
            return False
        return reply.status_code == httpx.codes.OK

    def client(self, **more: Any) -> Client:
        self._clients.append(Client(self.url, **more))
        return self._clients[-1]

    def processes(self) -> list[psutil.Process]:
        """The supervisor first, then everything under it."""
        assert self.process is not None
        supervisor = psutil.Process(self.process.pid)
        return [supervisor, *supervisor.children(recursive=True)]

    def named(self, module: str) -> list[psutil.Process]:
        """Processes of the hub whose command runs a module, parents first."""
        return [process for process in self.processes() if module in process.cmdline()]

    def kill(self, victims: list[psutil.Process]) -> None:
        """SIGKILL; then wait until nothing of the hub is left."""
        self._seen = self.processes()
        for victim in victims:
            victim.kill()
        self.wait_for_end()

    def stop(self) -> int:
        assert self.process is not None
        self._seen = self.processes()
        self.process.send_signal(signal.SIGTERM)
        self.wait_for_end()
        return self.process.returncode

    def wait_for_end(self, seconds: float = 40) -> None:
        assert self.process is not None
        self.process.wait(seconds)
        wait_until(lambda: not any(map(is_alive, self._seen)), seconds, "the end of every process")

    def destroy(self) -> None:
        """Whatever happened: no process of this hub remains."""
        for client in self._clients:
            client.http.close()
        left = list(self._seen)
        if self.process is not None and self.process.poll() is None:
            left += self.processes()
        for item in left:
            if is_alive(item):
                item.kill()
        if self.process is not None:
            self.process.wait(30)
        pid_file = self.data / "run" / "hub.pid"
        if pid_file.exists():
            _end_background(int(pid_file.read_text()))


def configured(root: Path, toml: str = OPEN_TOML, port: int | None = None) -> HubProcess:
    """A hub with settings in a file, not started."""
    result = HubProcess(root, port=port)
    result.config = root / "hub.toml"
    result.config.write_text(toml)
    return result


@contextmanager
def hub_in(root: Path, toml: str = OPEN_TOML) -> Iterator[HubProcess]:
    """A running hub in a folder, until the block ends."""
    result = configured(root, toml)
    try:
        yield result.start()
    finally:
        result.destroy()


def _end_background(pid: int) -> None:
    """A hub started in the background by a command, if it is still one."""
    try:
        supervisor = psutil.Process(pid)
        if "hub" not in supervisor.cmdline():
            return
        family = [supervisor, *supervisor.children(recursive=True)]
        os.kill(pid, signal.SIGTERM)
        _, alive = psutil.wait_procs(family, timeout=30)
        for item in alive:
            item.kill()
    except psutil.NoSuchProcess:
        return
