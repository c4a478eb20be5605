"""Triggers for the triggerer of a zone: a number of new events, and carriers on a medium.

A poll needs no task and no process. State is lost when the triggerer ends: carriers are reported
once more, and the DAGs are idempotent; events are counted from 0, so that a checkpoint by volume
can be late by as many as were counted, and is then made by time.
"""

from __future__ import annotations

import asyncio
import functools
import http.client
import logging
import os
import ssl
import time
import urllib.error
import urllib.request
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from airflow.triggers.base import BaseEventTrigger, TriggerEvent

from veen.errors import VeenError

_TIMEOUT_SEC: Final = 5.0
_WHO: Final = (401, 403)
_COUNTED: Final = "veen_submit_ok_total"
_LOG = logging.getLogger(__name__)


class _ZoneTrigger(BaseEventTrigger):
    """A polling trigger. ``zone_file`` is read at each poll, so that a change applies at once.

    While it cannot be read, its last content applies.
    """

    def __init__(self, zone_file: str) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.zone_file = zone_file
        self._known: Any = None

    def serialize(self) -> tuple[str, dict[str, Any]]:
        return f"veen_watch.{type(self).__name__}", {"zone_file": self.zone_file}

    def zone(self) -> Any:
        from zone.config import load  # noqa: PLC0415 - Airflow loads this file in every process

        try:
            self._known = load(Path(self.zone_file))
        except (OSError, VeenError) as error:
            if self._known is None:
                raise
            _LOG.warning("%s: the last valid value is used until it is corrected", error)
        return self._known


class VolumeTrigger(_ZoneTrigger):
    """Fires when the hub has accepted ``checkpoint_events`` more events since it last fired."""

    async def run(self) -> AsyncIterator[TriggerEvent]:
        before: int | None = None
        while True:
            zone = self.zone()
            count = await asyncio.to_thread(taken, zone)
            # A restarted hub counts from 0.
            if before is None or (count is not None and count < before):
                before = count
            if count is not None and before is not None and is_due(count - before, zone):
                yield _event(events=count - before)
                before = count
            await asyncio.sleep(zone.dags.poll_sec)


class MediumTrigger(_ZoneTrigger):
    """Fires when there is a new carrier on the medium or in the inbox."""

    async def run(self) -> AsyncIterator[TriggerEvent]:
        before: frozenset[str] = frozenset()
        while True:
            zone = self.zone()
            try:
                now = await asyncio.to_thread(signed_carriers, zone)
            except VeenError as error:
                _LOG.warning(
                    "the media are not searched for carriers until this is corrected: %s", error
                )
                now = before
            if now - before:
                yield _event(carriers=len(now - before))
            before = now
            await asyncio.sleep(zone.dags.poll_sec)


def _event(**counts: int) -> TriggerEvent:
    return TriggerEvent(counts)  # type: ignore[no-untyped-call]


def is_due(events: int, zone: Any) -> bool:
    return bool(0 < zone.dags.checkpoint_events <= events)


def taken(zone: Any) -> int | None:
    """The number of messages the hub has accepted; None while it does not answer."""
    from recorder.settings import load  # noqa: PLC0415 - Airflow loads this file in every process

    try:
        hub = load(zone.file).hub
        text = _metrics(f"{hub.url}/metrics", hub.ca, zone.dags.acting)
    except (OSError, http.client.HTTPException, VeenError) as error:
        _LOG.warning(
            "the counts of the hub cannot be read, so no checkpoint is made by volume: %s. Check "
            "that it runs (veen hub health), that [recorder.hub] has its url and ca, and that "
            "[dags.acting] names a principal that manages it",
            error,
        )
        return None
    counts = [line.rpartition(" ")[2] for line in text.splitlines() if line.startswith(_COUNTED)]
    return sum(int(float(item)) for item in counts)


def _metrics(url: str, ca: Path | None, who: Any) -> str:
    """The hub's metrics: open to everybody on its own host, else for those who manage it."""
    tls = None if ca is None else ssl.create_default_context(cafile=ca)
    try:
        return _got(url, {}, tls)
    except urllib.error.HTTPError as error:
        if error.code not in _WHO or who.client is None or who.principal is None:
            raise
    return _got(url, _signed(url, who), tls)


def _got(url: str, headers: Mapping[str, str], tls: ssl.SSLContext | None) -> str:
    """Treats a redirect as an error: signed headers are sent to the hub only."""
    request = urllib.request.Request(url, headers=dict(headers))  # noqa: S310 - http or https
    opener = urllib.request.build_opener(_NoHubRedirect, urllib.request.HTTPSHandler(context=tls))
    with opener.open(request, timeout=_TIMEOUT_SEC) as reply:
        return str(reply.read().decode(errors="replace"))


class _NoHubRedirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_given: Any) -> None:
        return None


def _signed(url: str, who: Any) -> dict[str, str]:
    from veen.client.credentials import Principal  # noqa: PLC0415 - only a hub elsewhere asks

    key = _key(who.client, who.passphrase_file)
    principal = Principal(who.principal, key, lambda: int(time.time()), os.urandom)
    return principal.headers("GET", url, b"")


@functools.cache
def _key(client: Path, passphrase_file: Path | None) -> Any:
    """The identity, read without taking its lock, so that tasks can use it."""
    from veen.keystore.card import identity_of  # noqa: PLC0415
    from veen.keystore.directory import ClientDir  # noqa: PLC0415 - only a hub elsewhere asks
    from veen.keystore.passphrase import read_passphrase  # noqa: PLC0415
    from veen.keystore.sealed import Secrets  # noqa: PLC0415

    given = os.environb.get(b"VEEN_PASSPHRASE")
    if passphrase_file is not None:
        given = read_passphrase(passphrase_file)
    sealed = ClientDir(client).sealed()
    opened = sealed.open(None if sealed.is_plain else given)
    return identity_of(Secrets.decode(opened), is_plain=sealed.is_plain).client


def signed_carriers(zone: Any) -> frozenset[str]:
    """The finished bags, which have a signature."""
    from bridge.settings import load  # noqa: PLC0415 - Airflow loads this file in every process

    importing = load(zone.file).importing
    inbox = () if importing is None else importing.state.glob("inbox/*/carrier.sig")
    medium = zone.dags.medium.glob("agb0/*/carrier.sig")
    return frozenset((*_lying(medium), *_lying(inbox)))


def _lying(files: Iterable[Path]) -> Iterator[str]:
    """A fingerprint of each file; a medium may be removed at any time."""
    try:
        paths = list(files)
    except OSError as error:
        _LOG.warning("a medium cannot be read: %s. Check that it is mounted and works", error)
        return
    for file in paths:
        try:
            state = file.stat()
        except OSError as error:
            _LOG.warning(
                "a carrier is no longer present: %s. Insert the medium again if it is still to be "
                "imported",
                error,
            )
        else:
            yield f"{file.parent}/{state.st_size}/{state.st_mtime_ns}"
