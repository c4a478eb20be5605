"""The runner of a query service as a process: ``python -m recorder.service``."""

from __future__ import annotations

import os
import signal
import sys
import time
from contextlib import ExitStack
from threading import Event
from typing import Final

from prometheus_client import CollectorRegistry

from recorder.archive.store import archive_in
from recorder.checkpoints.store import HubIdentityFile
from recorder.connect import open_recorder_client, reader_key
from recorder.emit.emitter import Emitter
from recorder.index.engine import EngineLimits
from recorder.index.tables import IndexHome
from recorder.service.airflow import AirflowAccount, AirflowScheduler
from recorder.service.database import Database, Results
from recorder.service.execute import InlineEngine
from recorder.service.follower_report import Reporter
from recorder.service.recording import Audits, Bookkeeping, Recording
from recorder.service.requests import Principals
from recorder.service.runner import Expiry, Following, QueryRunner
from recorder.service.spark import (
    ArchivedCheckpoints,
    JobTerms,
    LocalSubmitter,
    Scheduler,
    SparkEngine,
    SparkQueries,
    TimeLimit,
)
from recorder.service.supervisor import (
    ServiceHome,
    ServiceLaunch,
    WakeListener,
    WakeSocket,
    begin_as_child,
    parse_launch,
    runner_metrics,
)
from recorder.settings import RecorderSettings
from veen.captoken import CapToken
from veen.client.client import Client
from veen.client.transport import RetryPolicy
from veen.errors import VeenError
from veen.keystore.passphrase import read_passphrase
from veen.objects.port import StoreLocation
from veen.system.child_process import EXIT_REFUSED
from veen.system.environment import Runtime
from veen.system.process_pool import WorkerPool, pool
from veen.system.spark_submit import SparkSubmit

_WAIT_SEC: Final = 0.5
_AUDIT_SEC: Final = 0.25
_RETRY_POLICY: Final = RetryPolicy(attempts=3, first_sec=0.05, most_sec=0.5, timeout_sec=10)
_OPENERS: Final = 1
_AIRFLOW_USER: Final = "VEEN_AIRFLOW_USER"
_AIRFLOW_PASSWORD: Final = "VEEN_AIRFLOW_PASSWORD"  # noqa: S105 - the name of a variable
_PASSPHRASE: Final = b"VEEN_PASSPHRASE"


def main(arguments: list[str]) -> int:
    launch = parse_launch(arguments)
    begin_as_child(launch)
    over = Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: over.set())
    try:
        serve(launch, over)
    except VeenError as error:
        sys.stderr.write(f"the runner cannot go on: {error}\n")
        return EXIT_REFUSED
    return 0


def serve(launch: ServiceLaunch, over: Event) -> None:
    settings = launch.settings()
    home = ServiceHome(settings.query.results)
    home.create()
    with ExitStack() as closing:
        client = closing.enter_context(_client(settings))
        for cap in launch.caps:
            client.renew(CapToken.decode(cap.read_bytes()))
        wake_socket = WakeListener(home)
        closing.callback(wake_socket.close)
        reporter = Reporter(home.follower)
        following = Following(
            client, IndexHome(settings.index), _OPENERS, reporter, streams=settings.streams
        )
        following.start()
        closing.callback(following.stop)
        database = Database(home.database)
        books = _books(settings, client, database)
        beside = closing.enter_context(pool(settings.query.verifiers))
        runner = _runner(launch, settings, client, database, books, beside)
        closing.callback(runner.close)
        expiry = Expiry(Results(database), home, settings.query.keep_results_days, _clock_ms)
        launch.say_ready()
        _loop(runner, books, expiry, wake_socket, over)


def _loop(
    runner: QueryRunner, books: Bookkeeping, expiry: Expiry, wake_socket: WakeListener, over: Event
) -> None:
    """Run until stopped; audits are sent in batches, since nothing waits for their receipts."""
    audited = 0.0
    while not over.is_set():
        runner.turn()
        if time.monotonic() - audited > _AUDIT_SEC:
            books.record_audits()
            audited = time.monotonic()
        expiry.turn()
        wake_socket.wait(_WAIT_SEC)
    books.record_audits()


def _client(settings: RecorderSettings) -> Client:
    return open_recorder_client(
        settings.hub,
        passphrase=_passphrase(settings),
        runtime=_runtime(),
        retry_policy=_RETRY_POLICY,
    )


def _books(settings: RecorderSettings, client: Client, database: Database) -> Bookkeeping:
    identity_file = HubIdentityFile(ServiceHome(settings.query.results).hub_identity)
    emitter = Emitter(
        client,
        settings.streams,
        clock=_clock_ms,
        recipient=reader_key(settings.hub, int(time.time())),
    )
    return Bookkeeping(
        Results(database),
        Audits(database),
        Recording(client, emitter, identity_file, f"query@{settings.zone}"),
        principal_of=Principals(settings.query.principals).by_name,
        clock_ms=_clock_ms,
    )


def _runner(
    launch: ServiceLaunch,
    settings: RecorderSettings,
    client: Client,
    database: Database,
    books: Bookkeeping,
    beside: WorkerPool,
) -> QueryRunner:
    home = ServiceHome(settings.query.results)
    limits = EngineLimits(row_budget=settings.query.row_budget, max_rows=settings.query.max_rows)
    inline = InlineEngine(
        IndexHome(settings.index),
        home.rows,
        limits,
        hub=lambda: client.meet().hub,
        clock_ms=_clock_ms,
        beside=beside,
    )
    return QueryRunner(
        Results(database),
        books,
        inline,
        _spark(launch, settings, home, client),
        owner=f"{os.getpid()}-{time.time_ns()}",
        clock_ms=_clock_ms,
        metrics=runner_metrics(CollectorRegistry()),
        done=WakeSocket(home).notify,
    )


def _spark(
    launch: ServiceLaunch, settings: RecorderSettings, home: ServiceHome, client: Client
) -> SparkQueries | None:
    """None if queries never run on Spark: by the settings, or without an archive."""
    store = settings.objects
    if settings.query.engine == "inline" or store is None:
        return None
    scheduler = _scheduler(launch, settings)
    if scheduler is None:
        return None
    limited = TimeLimit(scheduler, settings.query.spark_timeout_sec, time.monotonic)
    archived = ArchivedCheckpoints(
        IndexHome(settings.index),
        archive=lambda: archive_in(store, settings.hub.hub_id, os.environ),
        hub=lambda: client.meet().hub,
    )
    return SparkQueries(SparkEngine(limited, home.spark, home.rows, _clock_ms), archived)


def _scheduler(launch: ServiceLaunch, settings: RecorderSettings) -> Scheduler | None:
    if settings.query.airflow_url is not None:
        account = AirflowAccount(
            os.environ.get(_AIRFLOW_USER, ""), os.environ.get(_AIRFLOW_PASSWORD, "")
        )
        return AirflowScheduler(settings.query.airflow_url, account, time.sleep)
    if launch.spark_job is None or settings.objects is None:
        return None
    terms = JobTerms(
        launch.spark_job,
        SparkSubmit(settings.query.spark_master, settings.query.spark_conf),
        StoreLocation.of(settings.objects),
        settings.hub.hub_id,
        settings.hub.opener.client,
        settings.hub.opener.passphrase_file,
    )
    return LocalSubmitter(terms, time.sleep)


def _passphrase(settings: RecorderSettings) -> bytes | None:
    file = settings.hub.passphrase_file
    if file is None:
        return os.environb.get(_PASSPHRASE)
    return read_passphrase(file)


def _runtime() -> Runtime:
    return Runtime(clock=lambda: int(time.time()), random=os.urandom, sleep=time.sleep)


def _clock_ms() -> int:
    return time.time_ns() // 1_000_000


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
