"""``veen demo``: two zones with an air gap between them, and every claim about them verified."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from enum import Enum
from pathlib import Path
from typing import Annotated, Final

import typer

from cli.console import global_options, notice, show
from cli.demo import scenes
from cli.demo.zones import (
    RUN_TIMEOUT_SEC,
    Claims,
    CommandRunner,
    DemoStage,
    object_server,
    staged,
    table,
)
from cli.errors import SELFTEST
from cli.zone import storage_of
from veen.errors import Refused, VeenError
from veen.system.child_process import Born, below
from veen.system.signals import signals_unwind
from zone.config import OFFLINE, ONLINE
from zone.directory import ZoneHome
from zone.init import ZoneRequest, init
from zone.run import leading
from zone.state import is_held

_PACE: Final[Mapping[str, str | int]] = {
    "checkpoint_minutes": 60, "anchor_minutes": 60, "audit": "off", "export": "off",
    "reconcile": "off", "retention": "off", "poll_sec": 10, "retry_sec": 5,
}  # fmt: skip
"""Settings with which Airflow runs a DAG only when it is started."""

_DAGS: Final = {
    ONLINE: {
        "veen_checkpoint", "veen_archive", "veen_anchor", "veen_audit", "veen_query", "veen_export",
    },
    OFFLINE: {"veen_checkpoint", "veen_import", "veen_reconcile"},
}  # fmt: skip
_BUCKETS: Final = ("veen-z1", "veen-z2")
_ROW_BUDGET: Final = 50
"""A row budget so small that the query of the demonstration runs on Spark."""


class StoreKind(Enum):
    FILES = "files"
    S3 = "s3"


def demo(
    directory: Annotated[
        Path, typer.Option("--directory", metavar="DIR", help="Directory to create.")
    ] = Path("var/demo"),
    store: Annotated[
        StoreKind,
        typer.Option("--store", help="Object store: a directory, or an S3-compatible server."),
    ] = StoreKind.FILES,
    again: Annotated[
        bool, typer.Option("--again", help="Remove the files of an earlier demonstration first.")
    ] = False,
) -> None:
    """Demonstrate the whole system in two zones on this host, and verify it.

    Records events in Z1; Airflow creates checkpoints and anchors, archives the log, audits it with
    Spark, and exports to a directory that simulates a medium. In Z2 a person approves the import,
    and the zones are reconciled. A query that ran on Spark in Z1 is run again in Z2. A tampered
    medium is refused.

    All services are stopped at the end, and by Ctrl-C; the files stay. Exits with 5 if a claim
    fails.

    Example: veen demo --directory ./demo
    """
    root, began = directory.absolute(), time.monotonic()
    _make_room(root, again=again)
    environment = dict(os.environ)
    with _stoppable(root), _playing(root, store, environment) as stage:
        _play_to_the_end(stage)
        started = below(os.getpid())
    claims = stage.claims
    _judge_the_end(stage, started)
    seconds = time.monotonic() - began
    show(
        {
            "claims": [claim.document() for claim in claims.judged],
            "held": len(claims.judged) - len(claims.broken),
            "seconds": round(seconds),
        },
        "\n".join([*table(claims.judged), "", _verdict(claims, seconds)]),
    )
    if claims.broken:
        raise typer.Exit(SELFTEST)


@contextmanager
def _stoppable(root: Path) -> Iterator[None]:
    """Report a signal only after everything is stopped."""
    try:
        with signals_unwind():
            yield
    except (KeyboardInterrupt, SystemExit):
        notice(f"interrupted: all that was started is stopped; what was made is left in {root}")
        raise


def _play_to_the_end(stage: DemoStage) -> None:
    """What cannot go on is a claim that does not hold; what was judged before is shown all the
    same."""
    try:
        _play(stage)
    except VeenError as error:
        stage.claims.judge(
            "the story goes to its end", False, detail=str(error), link=str(stage.folder)
        )


def _play(stage: DemoStage) -> None:
    for side in (stage.online, stage.offline):
        side.operator.await_dags(_DAGS[side.zone.role], RUN_TIMEOUT_SEC)
    scenes.record_and_secure(stage)
    audit = scenes.begin_audit(stage)
    scenes.carry(stage)
    scenes.judge_audit(stage, audit)
    scenes.query(stage)
    scenes.tamper(stage)


@contextmanager
def _playing(root: Path, store: StoreKind, environment: dict[str, str]) -> Iterator[DemoStage]:
    """Both zones up within the block, and stopped at its end in any case."""
    report = _clock()
    with ExitStack() as stack:
        endpoint = None
        if store is StoreKind.S3:
            endpoint = stack.enter_context(object_server(root / "object-server.log", _BUCKETS))
            # The server accepts any credentials, and the zones need some.
            os.environ.setdefault("AWS_ACCESS_KEY_ID", "demo")
            os.environ.setdefault("AWS_SECRET_ACCESS_KEY", "demo")
            report(f"an S3-compatible server answers on {endpoint}")
        homes = _zones(root, endpoint)
        report("two zones start: hub, query service, PostgreSQL and Airflow in each")
        os.environ["AIRFLOW__CORE__DAGS_ARE_PAUSED_AT_CREATION"] = "True"
        stack.enter_context(leading(homes, lambda line: report(f"  {line}")))
        commands = CommandRunner({**environment, **_store_keys()}, lambda line: report(f"  {line}"))
        for home in homes:
            report(f"  {home.root.name}: Airflow is at {home.zone().airflow.url}")
        yield stack.enter_context(staged(root, homes, commands, report))


def _zones(root: Path, endpoint: str | None) -> tuple[ZoneHome, ZoneHome]:
    homes = ZoneHome(root / "z1"), ZoneHome(root / "z2")
    for home, role, bucket in zip(homes, (ONLINE, OFFLINE), _BUCKETS, strict=True):
        request = ZoneRequest(
            name=home.root.name,
            role=role,
            storage=None if endpoint is None else storage_of(f"s3://{bucket}/demo", endpoint),
            trust=homes[0].handover if role == OFFLINE else None,
            medium=root / ("stick-1" if role == ONLINE else "mounted"),
            pace=_PACE,
            row_budget=_ROW_BUDGET,
        )
        init(home, request, now=int(time.time()), random=os.urandom)
    return homes


def _store_keys() -> dict[str, str]:
    names = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN")
    return {name: os.environ[name] for name in names if name in os.environ}


def _make_room(root: Path, *, again: bool) -> None:
    zones = [ZoneHome(root / name) for name in ("z1", "z2")]
    if any(is_held(home) for home in zones):
        raise Refused(
            f"another demonstration runs in {root}; wait for its end, or give another --directory"
        )
    if again and (root / ".demo").exists():
        shutil.rmtree(root)
    if root.exists() and any(root.iterdir()):
        raise Refused(f"{root} is not empty; add --again to remove an earlier demonstration")
    root.mkdir(parents=True, exist_ok=True)
    (root / ".demo").touch()


def _judge_the_end(stage: DemoStage, started: list[Born]) -> None:
    left = [born.pid for born in started if born.is_alive()]
    held = [side.zone.name for side in (stage.online, stage.offline) if is_held(side.home)]
    stage.claims.judge(
        "everything that was started is stopped",
        len(started) > 0 and not left and not held,
        detail=f"of {len(started)} processes {len(left)} are left",
        link=str(stage.folder),
    )


def _verdict(claims: Claims, seconds: float) -> str:
    broken = claims.broken
    count = f"{len(claims.judged) - len(broken)} of {len(claims.judged)} claims held"
    again = "to look around: veen zone up --directory DIR, of z1 or z2 in there"
    return f"{count}, after {seconds:.0f} s; " + (f"NOT: {broken[0].says}" if broken else again)


def _clock() -> Callable[[str], None]:
    began = time.monotonic()

    def report(line: str) -> None:
        if not global_options().json:
            notice(f"[{time.monotonic() - began:5.0f} s] {line}")

    return report
