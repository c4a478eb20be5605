"""Forgetting earlier states of an archive: what they alone stand on is deleted, and nothing else.

Each push that finds something new leaves a state: its manifest, those of its labels, and a copy of
every chunk that was open. Sealed files are in every later state and so are never touched. An
object that no state names is left alone as well: a push that runs now may have just put it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from recorder.archive import reach
from recorder.archive.manifest import ArchiveManifest
from recorder.archive.steps import Progress, Steps
from recorder.archive.store import HubArchive
from veen.objects.port import ObjectMissing, Retention

_FORGETTABLE: Final = ("tail/", "version/")


@dataclass(frozen=True, slots=True)
class Keeping:
    """Which states stay: the last ``states``, and those with an entry from ``since`` on."""

    states: int
    since: int | None = None

    def __post_init__(self) -> None:
        if self.states < 1:
            raise ValueError("the state that the head names always stays")


@dataclass(frozen=True, slots=True, kw_only=True)
class Forgettable:
    """``keys`` in the order in which they go: cut off, a later run finds the rest."""

    hub_id: bytes
    kept: int
    states: int
    keys: tuple[str, ...]
    size: int


def forgettable(archive: HubArchive, keeping: Keeping) -> Forgettable:
    """What earlier states alone stand on; nothing is deleted."""
    sha256, manifest = archive.latest_with_hash()
    kept = {one.key for one in reach.of_manifest(archive, sha256, manifest)}
    old: list[tuple[bytes, ArchiveManifest]] = []
    count = 1
    for known, state in reach.past(archive, manifest):
        stands_on = None if old else _stands_on(archive, known, state)
        if stands_on is None or not (
            count < keeping.states or _is_young(archive, state, keeping.since)
        ):
            old.append((known, state))
        else:
            kept |= stands_on
            count += 1
    keys: dict[str, None] = {}
    # The oldest first, and of each its manifest last: by it alone the others are found.
    for known, state in reversed(old):
        keys |= dict.fromkeys(key for key in _named(archive, known, state) if key not in kept)
    sizes = {key: size for key in keys if (size := _size(archive, key)) is not None}
    return Forgettable(
        hub_id=manifest.hub_id,
        kept=count,
        states=len(old),
        keys=tuple(sizes),
        size=sum(sizes.values()),
    )


def forget(retention: Retention, found: Forgettable, progress: Progress) -> None:
    steps = Steps(progress, len(found.keys))
    steps.begin()
    for key in found.keys:
        retention.delete(key)
        steps.add()


def _stands_on(archive: HubArchive, sha256: bytes, state: ArchiveManifest) -> set[str] | None:
    """What a state needs; None when a run that was cut off has taken some of it already."""
    try:
        return {one.key for one in reach.of_manifest(archive, sha256, state)}
    except ObjectMissing:
        return None


def _is_young(archive: HubArchive, state: ArchiveManifest, since: int | None) -> bool:
    if since is None:
        return False
    return any(one.last_ts >= since for one in archive.labels(state))


def _named(archive: HubArchive, sha256: bytes, state: ArchiveManifest) -> Iterator[str]:
    """The tails and documents of a state, as far as it is still there."""
    keys = archive.keys
    for ref in state.labels:
        try:
            label = archive.label_of(ref)
        except ObjectMissing:
            continue
        yield from (one.key for one in reach.of_label(keys, label) if _may_go(archive, one.key))
        yield keys.version(ref.sha256)
    yield from (one.key for one in reach.documents(keys, state))
    yield keys.version(sha256)


def _may_go(archive: HubArchive, key: str) -> bool:
    return key.removeprefix(archive.keys.prefix).startswith(_FORGETTABLE)


def _size(archive: HubArchive, key: str) -> int | None:
    try:
        return archive.objects.size(key)
    except ObjectMissing:
        return None
