"""The command line of spark-submit: program, master, settings, job, and environment."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from shutil import which
from typing import Final

DEFAULT_CONF: Final[Mapping[str, str]] = {
    "spark.ui.enabled": "false",
    "spark.log.level": "ERROR",
}
_PROGRAM: Final = "spark-submit"


@dataclass(frozen=True, slots=True)
class SparkSubmit:
    """Where and how jobs run. ``conf`` are settings of Spark, over the defaults.

    Other users see a command line in the list of processes: a secret goes by the environment, as
    ``_SPARK_AUTH_SECRET``.
    """

    master: str
    conf: Mapping[str, str]

    def command(self, job: Path, arguments: Iterable[str]) -> list[str]:
        return [*self._begin(), str(job), *arguments]

    def environment(self, environ: Mapping[str, str]) -> dict[str, str]:
        return {**environ, **self.variables(environ)}

    def variables(self, environ: Mapping[str, str]) -> dict[str, str]:
        """Variables of Spark: by default it uses this Python and, if local, the loopback
        interface."""
        defaults = {"PYSPARK_PYTHON": sys.executable}
        if self.master.startswith("local"):
            defaults["SPARK_LOCAL_IP"] = "127.0.0.1"
        return {name: environ.get(name, value) for name, value in defaults.items()}

    def _begin(self) -> Iterator[str]:
        yield program() or _PROGRAM
        yield from ("--master", self.master)
        for key, value in {**DEFAULT_CONF, **self.conf}.items():
            yield from ("--conf", f"{key}={value}")


def program() -> str | None:
    """The spark-submit of this Python environment, or else of the PATH; None if there is none."""
    own = Path(sys.executable).with_name(_PROGRAM)
    return str(own) if own.exists() else which(_PROGRAM)
