"""A standalone cluster of real processes on loopback, and jobs as they are submitted to it."""

from __future__ import annotations

import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

BIN = Path(sys.executable).parent
AUTHENTICATED = "-Dspark.authenticate=true -Dspark.network.crypto.enabled=true"
"""Options of daemons as the container files start them; the secret is in the environment."""
LIGHT = ("spark.ui.enabled=false", "spark.driver.memory=512m", "spark.executor.memory=512m",
         "spark.driver.host=127.0.0.1", "spark.executor.extraJavaOptions=-XX:TieredStopAtLevel=1",
         "spark.driver.extraJavaOptions=-XX:TieredStopAtLevel=1")  # fmt: skip


class Daemon:
    """A process of a standalone cluster; it is ended by its own id."""

    def __init__(
        self,
        environment: dict[str, str],
        host: str,
        kind: str,
        *options: str,
        says: str,
        java: str = "",
    ) -> None:
        self.process = subprocess.Popen(
            [BIN / "spark-class", f"org.apache.spark.deploy.{kind}", "--host", host,
             "--port", "0", "--webui-port", "0", *options],
            env=environment | {
                "SPARK_DAEMON_MEMORY": "256m", "SPARK_LOCAL_IP": host,
                "SPARK_DAEMON_JAVA_OPTS": f"-XX:TieredStopAtLevel=1 -XX:+UseSerialGC {java}",
            },
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )  # fmt: skip
        self.matched = self._wait(re.compile(says))
        # Whoever does not read on blocks the process once the pipe is full.
        threading.Thread(target=self._drain, daemon=True).start()

    def stop(self) -> None:
        self.process.terminate()
        self.process.wait(timeout=30)

    def _wait(self, says: re.Pattern[str]) -> str:
        assert self.process.stdout is not None
        seen = []
        for line in self.process.stdout:
            seen.append(line)
            if match := says.search(line):
                return match[0]
        raise AssertionError("".join(seen))

    def _drain(self) -> None:
        assert self.process.stdout is not None
        with self.process.stdout as lines:
            for _ in lines:
                pass


@contextmanager
def cluster(environment: dict[str, str], work: Path) -> Iterator[str]:
    """The URL of a cluster of two workers with a core each, on hosts of different names."""
    started = [Daemon(environment, "127.0.0.1", "master.Master", says=r"spark://127\.0\.0\.1:\d+")]
    url = started[0].matched
    options = ("--cores", "1", "--memory", "1g", "--work-dir", str(work), url)
    try:
        # A second copy of a task never runs on the host of the first.
        for host in ("127.0.0.1", "127.0.0.2"):
            item = Daemon(
                environment, host, "worker.Worker", *options, says="Successfully registered"
            )
            started.append(item)
        yield url
    finally:
        for daemon in reversed(started):
            daemon.stop()


def submit(environment: dict[str, str], master: str, *words: str | Path, conf: Any = ()) -> Any:
    given = [part for item in (*LIGHT, *conf) for part in ("--conf", item)]
    return subprocess.run(
        [BIN / "spark-submit", "--master", master, *given, *words],
        env=environment, capture_output=True, text=True, check=False, timeout=240,
    )  # fmt: skip
