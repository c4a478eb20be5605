"""What the triggerer watches for a zone: so many new events, and carriers that came with a medium.

A look costs no task and no process. Whatever is forgotten when the triggerer ends is told once more
when it starts; the DAGs do nothing twice.
"""

from __future__ import annotations

import asyncio
import logging
import urllib.request
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Final

from airflow.triggers.base import BaseEventTrigger, TriggerEvent

_TIMEOUT_SEC: Final = 5.0
_COUNTED: Final = "veen_submit_ok_total"
_LOG = logging.getLogger(__name__)


class _ZoneTrigger(BaseEventTrigger):
    """``zone_file`` is read at each look, so that a change of it counts at once."""

    def __init__(self, zone_file: str) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.zone_file = zone_file

    def serialize(self) -> tuple[str, dict[str, Any]]:
        return f"veen_watch.{type(self).__name__}", {"zone_file": self.zone_file}

    def zone(self) -> Any:
        from recorder.zone import load  # noqa: PLC0415 - Airflow loads this file in every process

        return load(Path(self.zone_file))


class VolumeTrigger(_ZoneTrigger):
    """Tells when the hub has taken ``checkpoint_events`` more since it was told last."""

    async def run(self) -> AsyncIterator[TriggerEvent]:
        before: int | None = None
        while True:
            zone = self.zone()
            count = await asyncio.to_thread(taken, hub_url(Path(self.zone_file)))
            # A hub that was started again counts from nothing.
            if before is None or (count is not None and count < before):
                before = count
            if count is not None and before is not None and is_due(count - before, zone):
                yield _event(events=count - before)
                before = count
            await asyncio.sleep(zone.dags.poll_sec)


class MediumTrigger(_ZoneTrigger):
    """Tells when a carrier lies on the medium or in the inbox that did not lie there before."""

    async def run(self) -> AsyncIterator[TriggerEvent]:
        before: frozenset[str] = frozenset()
        while True:
            zone = self.zone()
            now = await asyncio.to_thread(signed_carriers, zone)
            if now - before:
                yield _event(carriers=len(now - before))
            before = now
            await asyncio.sleep(zone.dags.poll_sec)


def _event(**counts: int) -> TriggerEvent:
    return TriggerEvent(counts)  # type: ignore[no-untyped-call]


def is_due(events: int, zone: Any) -> bool:
    return bool(0 < zone.dags.checkpoint_events <= events)


def taken(url: str) -> int | None:
    """How many messages the hub says it has taken; None while it does not answer."""
    try:
        with urllib.request.urlopen(f"{url}/metrics", timeout=_TIMEOUT_SEC) as reply:  # noqa: S310
            text = reply.read().decode(errors="replace")
    except OSError as error:
        _LOG.info("the hub at %s does not tell its counts: %s", url, error)
        return None
    found = [line.rpartition(" ")[2] for line in text.splitlines() if line.startswith(_COUNTED)]
    return sum(int(float(one)) for one in found)


def hub_url(file: Path) -> str:
    from recorder.settings import load  # noqa: PLC0415 - Airflow loads this file in every process

    return load(file).hub.url


def signed_carriers(zone: Any) -> frozenset[str]:
    """What is signed is finished; a carrier that is still being written is not there yet."""
    from bridge.settings import load  # noqa: PLC0415 - Airflow loads this file in every process

    importing = load(zone.file).importing
    inbox = [] if importing is None else importing.state.glob("inbox/*/carrier.sig")
    found = []
    for file in (*zone.dags.medium.glob("agb0/*/carrier.sig"), *inbox):
        state = file.stat()
        found.append(f"{file.parent}/{state.st_size}/{state.st_mtime_ns}")
    return frozenset(found)
