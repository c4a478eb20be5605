"""``veen recorder serve``: the query service of a recorder, in the foreground."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

import spark_jobs
from cli import errors
from cli.console import notice
from cli.recorder_options import CapsOption, RecorderConfigOption
from recorder.service import supervisor
from recorder.service.supervisor import ServiceLaunch, begin
from recorder.settings import DEFAULT_PATH
from veen.captoken import read_token
from veen.system.listening import refuse_taken
from zone.imports import take_up


def serve(
    config: RecorderConfigOption = DEFAULT_PATH,
    cap: CapsOption = None,
    spark: Annotated[
        bool, typer.Option("--spark/--no-spark", help="Run large queries on Spark.")
    ] = True,
) -> None:
    """Serve the Query API over HTTP, follow the index and run queries.

    Runs in the foreground until SIGTERM or Ctrl-C. Submitted queries are on disk, and resume after
    a restart.

    Example: veen recorder serve --config recorder.toml
    """
    launch = ServiceLaunch(
        config.absolute(),
        spark_job=_job() if spark else None,
        caps=tuple(item.absolute() for item in cap or ()),
    )
    settings = launch.settings()
    for path in launch.caps:
        read_token(path)
    refuse_taken(settings.query.listen, f"change listen of [query] in {config}")
    take_up(config)
    scheme = "https" if settings.query.tls_cert else "http"
    serving = f"serving queries on {scheme}://{settings.query.listen}; stop with Ctrl-C"
    begin(launch)
    ended = supervisor.run(launch, lambda: notice(serving))
    sys.exit(errors.REFUSED if ended else errors.OK)


def _job() -> Path | None:
    (folder,) = spark_jobs.__path__
    job = Path(folder) / "query_digest.py"
    return job if job.exists() else None
