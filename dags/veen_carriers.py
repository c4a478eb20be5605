"""The carriers that lie on a medium or in the inbox, and which of them are done with."""

from __future__ import annotations

import contextlib
import json
import logging
import os
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from veen_made import kept
from veen_zone import zone

if TYPE_CHECKING:
    from bridge.carrier.bag_path import BagPath
    from bridge.carrier.directory import Directory

Context = Mapping[str, Any]
_MOST: Final = 2_000
"""So many entries of a bag are looked at; one with more is refused by whoever verifies it."""
_LOG = logging.getLogger(__name__)


def undecided(context: Context) -> list[dict[str, Any]]:
    """The carriers on the medium and in the inbox that no run has come to an end with.

    A medium that cannot be listed keeps nobody from the inbox.
    """
    from bridge.medium_bags import NoBags, carriers  # noqa: PLC0415 - only a task needs them
    from veen.errors import VeenError  # noqa: PLC0415

    medium = Path(context["params"]["medium"])
    places = [[medium] if medium.is_dir() else [], *([one] for one in _inbox()), *_unasked()]
    found: list[tuple[BagPath, ...]] = []
    for place in filter(None, places):
        try:
            found += carriers(place)
        except NoBags:
            continue
        except (OSError, VeenError) as error:
            _LOG.warning("%s is not looked at: %s", place[0], error)
    signed = [one for one in found if all(map(_is_signed, one))]
    told = [{"key": _key(bags), "bags": [str(bag) for bag in bags]} for bags in signed]
    return [one for one in told if not seen(str(one["key"])).exists()]


def seen(key: str) -> Path:
    """What is left of a carrier that a run has come to an end with."""
    return zone().folder / "runs" / "carriers" / f"{key}.json"


def import_state() -> Path:
    from bridge.settings import load  # noqa: PLC0415 - only a task needs it

    importing = load(zone().file).importing
    return importing.state if importing else zone().folder


def _inbox() -> list[Path]:
    folder = import_state() / "inbox"
    if not folder.is_dir():
        return []
    return sorted(one for one in folder.iterdir() if one.is_dir() and not one.is_symlink())


def _is_signed(bag: BagPath) -> bool:
    """Whether it is finished; one that leads out of the medium is, so that it is judged."""
    from bridge.carrier.directory import LEADS_ELSEWHERE  # noqa: PLC0415 - only a task needs it

    try:
        with bag.open() as root:
            return root.exists("carrier.sig")
    except OSError as error:
        return error.errno in LEADS_ELSEWHERE


def _unasked() -> list[list[Path]]:
    """The bags of each bundle that waits in the airlock and that no person has let in."""
    folder = import_state() / "waiting"
    places = sorted(folder.iterdir()) if folder.is_dir() else []
    return [sorted(one.iterdir()) for one in places if not _has_people(one.name)]


def _has_people(bundle: str) -> bool:
    """Whether people have let it in; then it waits for something else."""
    found = kept(zone(), "import", bundle)
    return bool(found and found.summary.get("decided_by"))


def _key(bags: Sequence[BagPath]) -> str:
    """What lies there, by names, sizes and times: anything that changes is looked at again."""
    from veen.digest import h  # noqa: PLC0415 - only a task needs it

    files = sorted((file for bag in bags for file in _files(bag)), key=lambda one: one[0])
    listed = [[str(path), state.st_size, state.st_mtime_ns] for path, state in files]
    return h(json.dumps(listed or [str(bag) for bag in bags]).encode()).hex()[:32]


def _files(bag: BagPath) -> Iterator[tuple[Path, os.stat_result]]:
    """Nothing that a name leads to is followed, and no carrier keeps another from being judged."""
    with contextlib.suppress(OSError), bag.open() as root:
        yield from _entries(root)
        with root.directory("data") as data:
            yield from _entries(data)


def _entries(directory: Directory) -> Iterator[tuple[Path, os.stat_result]]:
    with os.scandir(directory.fd) as found:
        for name in sorted(one.name for one in islice(found, _MOST)):
            yield directory.path / name, directory.status(name)
