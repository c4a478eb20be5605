"""An S3-compatible server on this host, for a demonstration over it; it keeps nothing."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import httpx

from cli.failure import Refused
from cli.zone_process import end_with_parent

_START_SEC: Final = 60.0


@contextmanager
def object_server(log: Path, buckets: tuple[str, ...]) -> Iterator[str]:
    """Its address, with these buckets in it; it ends with the block."""
    program = Path(sys.executable).with_name("moto_server")
    if not program.exists():
        raise Refused("moto_server is missing: run make setup")
    port = _free_port()
    url = f"http://127.0.0.1:{port}"
    with log.open("ab") as file:
        process = subprocess.Popen(  # noqa: S603
            [str(program), "-H", "127.0.0.1", "-p", str(port)],
            stdin=subprocess.DEVNULL, stdout=file, stderr=file, start_new_session=True,
            preexec_fn=end_with_parent,  # noqa: PLW1509
        )  # fmt: skip
    try:
        _await(process, url)
        for name in buckets:
            httpx.put(f"{url}/{name}", trust_env=False).raise_for_status()
        yield url
    finally:
        process.terminate()
        process.wait()


def _await(process: subprocess.Popen[bytes], url: str) -> None:
    deadline = time.monotonic() + _START_SEC
    while True:
        try:
            httpx.get(url, trust_env=False)
        except httpx.HTTPError:
            if process.poll() is not None or time.monotonic() > deadline:
                raise Refused("the S3-compatible server does not start") from None
            time.sleep(0.1)
        else:
            return


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
