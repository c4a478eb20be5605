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

from recorder.emit.emitter import Emitter
from recorder.hub_client import open_client, reader_key
from recorder.index.engine import EngineLimits
from recorder.index.home import IndexHome
from recorder.service.airflow import AirflowAccount, AirflowScheduler
from recorder.service.archived import ArchivedCheckpoints
from recorder.service.audit import Audits
from recorder.service.bookkeeping import Bookkeeping
from recorder.service.database import Database
from recorder.service.engine import InlineEngine
from recorder.service.expiry import Expiry
from recorder.service.follower_report import Reporter
from recorder.service.following import Following
from recorder.service.home import Bell, BellListener, ServiceHome
from recorder.service.hub_papers import HubPapers
from recorder.service.metrics import runner_metrics
from recorder.service.principals import Principals
from recorder.service.process import Launch, begin_as_child, parse_launch
from recorder.service.recording import Recording
from recorder.service.results import Results
from recorder.service.runner import Runner
from recorder.service.scheduling import JobTerms, LocalSubmitter, Scheduler, store_arguments
from recorder.service.spark_engine import SparkEngine
from recorder.service.spark_queries import SparkQueries
from recorder.service.store import archive_in
from recorder.service.time_limit import TimeLimit
from recorder.settings import Settings
from veen.captoken import CapToken
from veen.child_process import REFUSED
from veen.client.client import Client
from veen.client.surroundings import Surroundings
from veen.client.transport import Patience
from veen.crew import Crew, crew
from veen.errors import VeenError

_WAIT_SEC: Final = 0.5
_AUDIT_SEC: Final = 0.25
_PATIENCE: Final = Patience(attempts=3, first_sec=0.05, most_sec=0.5, timeout_sec=10)
_OPENERS: Final = 1
_AIRFLOW_USER: Final = "VEEN_AIRFLOW_USER"
_AIRFLOW_PASSWORD: Final = "VEEN_AIRFLOW_PASSWORD"  # noqa: S105 - the name of a variable
_PASSPHRASE: Final = b"VEEN_PASSPHRASE"


def main(arguments: list[str]) -> int:
    launch = parse_launch(arguments)
    begin_as_child(launch)
    over = Event()
    for one in (signal.SIGTERM, signal.SIGINT):
        signal.signal(one, lambda *_: over.set())
    try:
        serve(launch, over)
    except VeenError as error:
        sys.stderr.write(f"the runner cannot go on: {error}\n")
        return REFUSED
    return 0


def serve(launch: Launch, over: Event) -> None:
    settings = launch.settings()
    home = ServiceHome(settings.query.results)
    home.create()
    with ExitStack() as closing:
        client = closing.enter_context(_client(settings))
        for one in launch.caps:
            client.renew(CapToken.decode(one.read_bytes()))
        bell = BellListener(home)
        closing.callback(bell.close)
        reporter = Reporter(home.follower)
        following = Following(
            client, IndexHome(settings.index), _OPENERS, reporter, streams=settings.streams
        )
        following.start()
        closing.callback(following.stop)
        database = Database(home.database)
        books = _books(settings, client, database)
        beside = closing.enter_context(crew(settings.query.verifiers))
        runner = _runner(launch, settings, client, database, books, beside)
        closing.callback(runner.close)
        expiry = Expiry(Results(database), home, settings.query.keep_results_days, _clock_ms)
        launch.say_ready()
        _loop(runner, books, expiry, bell, over)


def _loop(
    runner: Runner, books: Bookkeeping, expiry: Expiry, bell: BellListener, over: Event
) -> None:
    """Audits go out several together: their receipts are waited for by nobody."""
    audited = 0.0
    while not over.is_set():
        runner.turn()
        if time.monotonic() - audited > _AUDIT_SEC:
            books.record_audits()
            audited = time.monotonic()
        expiry.turn()
        bell.wait(_WAIT_SEC)
    books.record_audits()


def _client(settings: Settings) -> Client:
    return open_client(
        settings.hub,
        passphrase=_passphrase(settings),
        surroundings=_surroundings(),
        patience=_PATIENCE,
    )


def _books(settings: Settings, client: Client, database: Database) -> Bookkeeping:
    papers = HubPapers(ServiceHome(settings.query.results).papers)
    emitter = Emitter(
        client,
        settings.streams,
        clock=_clock_ms,
        recipient=reader_key(settings.hub, int(time.time())),
    )
    return Bookkeeping(
        Results(database),
        Audits(database),
        Recording(client, emitter, papers, f"query@{settings.zone}"),
        principal_of=Principals(settings.query.principals).by_name,
        clock_ms=_clock_ms,
    )


def _runner(
    launch: Launch,
    settings: Settings,
    client: Client,
    database: Database,
    books: Bookkeeping,
    beside: Crew,
) -> Runner:
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
    return Runner(
        Results(database),
        books,
        inline,
        _spark(launch, settings, home, client),
        owner=f"{os.getpid()}-{time.time_ns()}",
        clock_ms=_clock_ms,
        metrics=runner_metrics(CollectorRegistry()),
        done=Bell(home).ring,
    )


def _spark(
    launch: Launch, settings: Settings, home: ServiceHome, client: Client
) -> SparkQueries | None:
    """None where queries never go to Spark: by the settings, or for want of an archive."""
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


def _scheduler(launch: Launch, settings: Settings) -> Scheduler | None:
    if settings.query.airflow_url is not None:
        account = AirflowAccount(
            os.environ.get(_AIRFLOW_USER, ""), os.environ.get(_AIRFLOW_PASSWORD, "")
        )
        return AirflowScheduler(settings.query.airflow_url, account, time.sleep)
    if launch.spark_job is None or settings.objects is None:
        return None
    terms = JobTerms(
        launch.spark_job,
        settings.query.spark_master,
        store_arguments(settings.objects),
        settings.hub.hub_id,
        settings.hub.opener.client,
        settings.hub.opener.passphrase_file,
    )
    return LocalSubmitter(terms, time.sleep)


def _passphrase(settings: Settings) -> bytes | None:
    file = settings.hub.passphrase_file
    if file is None:
        return os.environb.get(_PASSPHRASE)
    return file.read_bytes().removesuffix(b"\n").removesuffix(b"\r")


def _surroundings() -> Surroundings:
    return Surroundings(clock=lambda: int(time.time()), random=os.urandom, sleep=time.sleep)


def _clock_ms() -> int:
    return time.time_ns() // 1_000_000


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
