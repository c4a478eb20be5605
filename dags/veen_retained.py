"""Retention: the hub stopped for it and started again, and what was let go.

A hub that ``veen zone up`` runs is asked to rest by a file, since the zone ends with its hub
otherwise: while ``hub.rest`` is there it rests, and ``hub.resting`` says that it does.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from string import ascii_letters, digits
from typing import Any, Final

from veen_alarm import Alarm
from veen_command import Answer, Command, environment
from veen_made import Made, Nothing
from veen_words import data_dir, hub_start
from veen_zone import zone

Context = Mapping[str, Any]
_REST_SEC: Final = 60.0
_LOOK_SEC: Final = 0.2
_PLAIN: Final = frozenset(f"{ascii_letters}{digits}._:+-")
_LOG = logging.getLogger(__name__)


def due_of(answer: Answer, _context: Context) -> Sequence[Made]:
    due = answer.document["due"]
    if not due:
        raise Nothing("the policy lets no chunk go")
    _LOG.info("%d chunks may go: %s", len(due), ", ".join(due))
    return ()


def pruned_of(answer: Answer, context: Context) -> Sequence[Made]:
    """Under the name of the run; a second try finds less to do, and both count."""
    counts = {"due": len(answer.document["due"]), "pruned": answer.document["pruned"]}
    name = "".join(one if one in _PLAIN else "_" for one in context["run_id"])
    return [Made(kind="retention", id=name, state="pruned", summary=counts)]


def stop_words(_context: Context) -> Sequence[str]:
    of = zone()
    if _is_supervised():
        _rest_file().touch(mode=0o600)
        if not _comes(_resting_file(), True):
            _rest_file().unlink(missing_ok=True)
            raise Alarm("no-rest", "the hub was asked to rest, and nobody let it; nothing is gone.")
    return ["hub", "stop", *data_dir(of)]


def start_words(_context: Context) -> Sequence[str]:
    """Whoever runs the hub of a zone starts it again; another one is started here."""
    of = zone()
    if not _is_supervised():
        return hub_start(of)
    _rest_file().unlink(missing_ok=True)
    if not _comes(_resting_file(), False):
        raise Alarm("no-wake", "the hub was not started again.")
    return ["hub", "health", "--hub", str(of.hub_data)]


def _is_supervised() -> bool:
    words = ["zone", "status", "--directory", str(zone().folder)]
    found = Command(words, environment=environment()).answer("Restart the hub", accept=(0, 4))
    return any(one["stage"] in ("up", "starting") for one in found.document["zones"])


def _comes(file: Path, is_there: bool) -> bool:
    deadline = time.monotonic() + _REST_SEC
    while file.exists() is not is_there:
        if time.monotonic() > deadline:
            return False
        time.sleep(_LOOK_SEC)
    return True


def _rest_file() -> Path:
    return zone().folder / "hub.rest"


def _resting_file() -> Path:
    return zone().folder / "hub.resting"
