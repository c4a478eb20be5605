"""What ``veen bridge reconcile`` and ``prove`` read a zone with."""

from __future__ import annotations

import tempfile
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from bridge.audit import Recorded
from bridge.carrier.check import Means
from bridge.identities import open_client
from bridge.reconcile.collect import Collected, Listener, collect_offline, collect_online
from bridge.reconcile.collect_carriers import Carried
from bridge.reconcile.collect_imports import Placed
from bridge.reconcile.facts import Stranger
from bridge.settings import Settings, Zone
from bridge.trust import TrustStore
from cli.bridge_options import zone_keys
from cli.console import progress
from cli.failure import Refused
from cli.options import patience, surroundings
from veen.client.client import Client
from veen.client.progress import Progress

CarriersOption = Annotated[
    list[Path] | None,
    typer.Option("--carrier", metavar="DIR", help="Carriers beside those in archive/; repeatable."),
]


@contextmanager
def reader_of(settings: Settings) -> Iterator[Client]:
    """Offline the reader; online the bridge's own identity reads the audit log."""
    identity = settings.reader if settings.zone is Zone.OFFLINE else settings.bridge
    if identity is None:
        raise Refused("the settings have no [reader]; it is needed to read what was imported")
    with open_client(
        settings.hub,
        identity,
        surroundings=surroundings(),
        patience=patience(),
        keys=settings.reader_keys,
    ) as client:
        client.meet()
        yield client


def collected(
    settings: Settings,
    reader: Client,
    carrier: list[Path] | None,
    key: list[Path] | None,
    listener: Listener,
    chosen: Collection[bytes] = (),
) -> Collected:
    """The facts of a zone; ``chosen`` are checkpoints that C1 is to be, by their ids."""
    if settings.zone is Zone.ONLINE:
        return collect_online(settings, reader, chosen)
    own = settings.importing.zone_keys if settings.importing else ()
    with tempfile.TemporaryDirectory(prefix="veen-reconcile-") as scratch:
        means = Means(
            trust=TrustStore.read(settings.trust),
            scratch=Path(scratch),
            privates=zone_keys([*own, *(key or ())]),
        )
        media = [one.absolute() for one in carrier or ()]
        with progress("reading", "events") as report:
            watched = Watched(listener, report)
            return collect_offline(settings, reader, Carried(means, chosen), media, watched)


class Watched:
    """Tells how many events and entries have been read, and passes them on."""

    def __init__(self, listener: Listener, report: Progress) -> None:
        self._listener = listener
        self._report = report
        self._count = 0

    def placed(self, one: Placed | Stranger) -> None:
        self._told()
        self._listener.placed(one)

    def online(self, one: Recorded) -> None:
        self._listener.online(one)

    def offline(self, one: Recorded) -> None:
        self._told()
        self._listener.offline(one)

    def _told(self) -> None:
        self._count += 1
        self._report(self._count, None)
