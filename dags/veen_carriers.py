"""The carriers that lie on a medium or in the inbox, and which of them are done with."""

from __future__ import annotations

import contextlib
import functools
import json
import logging
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import accumulate, islice
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
MOST_WORDS: Final = 512 << 10
"""Bytes of the paths that one run passes to a command: the system bounds them at 2 MiB."""
_PER_PATH: Final = 32
"""What a path costs beside its own bytes: the option before it, and pointers."""
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


def portion(found: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """What one run takes up: as many carriers as the words of a command hold.

    Bags that a trusted exporter has signed come first, and carriers that have one: anybody can put
    many others beside them. Of a carrier with more bags than fit, the last ones are left out.
    """
    is_signed = _signed_by_trusted()
    ranked = [
        {**one, "bags": sorted(one["bags"], key=lambda bag: not is_signed(bag))} for one in found
    ]
    ranked.sort(key=lambda one: not is_signed(one["bags"][0]))
    taken, room = list[dict[str, Any]](), MOST_WORDS
    for one in ranked:
        sizes = accumulate(len(os.fsencode(bag)) + _PER_PATH for bag in one["bags"])
        fitting = [bag for bag, size in zip(one["bags"], sizes, strict=True) if size <= room]
        if taken and len(fitting) < len(one["bags"]):
            break
        taken.append({**one, "bags": fitting})
        room -= sum(len(os.fsencode(bag)) + _PER_PATH for bag in fitting)
    return taken


def _signed_by_trusted() -> Callable[[str], bool]:
    """Whether a trusted exporter has signed a bag; only its tag files are read, and once."""
    from bridge.carrier.bag_path import BagPath  # noqa: PLC0415 - only a task needs them
    from bridge.importer.signed_bag import check_signed  # noqa: PLC0415
    from bridge.settings import load  # noqa: PLC0415
    from bridge.trust import TrustStore  # noqa: PLC0415
    from veen.errors import VeenError  # noqa: PLC0415

    settings = load(zone().file)
    trust = TrustStore.read(settings.trust)

    @functools.cache
    def is_signed(bag: str) -> bool:
        try:
            check_signed(BagPath.of(Path(bag)), trust, sys.maxsize)
        except (OSError, VeenError):
            return False
        return True

    return is_signed


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
