"""The carriers that lie on a medium or in the inbox, and which of them are done with."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from veen_zone import zone

Context = Mapping[str, Any]


def undecided(context: Context) -> list[dict[str, Any]]:
    """The carriers on the medium and in the inbox that no run has come to an end with."""
    from bridge.medium_bags import NoBags, carriers  # noqa: PLC0415 - only a task needs them

    places = [Path(context["params"]["medium"]), *_inbox()]
    found: list[tuple[Path, ...]] = []
    for place in places:
        try:
            found += carriers([place]) if place.is_dir() else []
        except NoBags:
            continue
    signed = [one for one in found if all((bag / "carrier.sig").exists() for bag in one)]
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
    return sorted(one for one in folder.iterdir() if one.is_dir()) if folder.is_dir() else []


def _key(bags: Sequence[Path]) -> str:
    """What lies there, by names, sizes and times: anything that changes is looked at again."""
    from veen.digest import h  # noqa: PLC0415 - only a task needs it

    listed = []
    for file in sorted(file for bag in bags for file in bag.rglob("*")):
        state = file.lstat()
        listed.append([str(file), state.st_size, state.st_mtime_ns])
    return h(json.dumps(listed).encode()).hex()[:32]
