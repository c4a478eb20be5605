"""The last checkpoint and its anchors, verified while the page is made, without the hub."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from veen_page_made import MayRead, seen_by_id
from veen_page_streams import Kept
from veen_page_zone import Place, reading

from recorder.anchor import book
from recorder.anchor.port import kind_of
from recorder.anchor.task import AnchorTask
from recorder.artefact import Artefact
from recorder.checkpoints import check, hub_papers
from recorder.checkpoints.cadence import AnchorCadence
from recorder.checkpoints.door import Door
from recorder.checkpoints.home import CheckpointName, Home, files
from veen.errors import VeenError
from veen.hub_identity import HubIdentity
from veen.recorder_checkpoint import RecorderCheckpoint

_LARGEST_LEDGER: Final = 1 << 20
"""Beyond it a page would wait: an anchor is proven by reading all of its ledger."""
_TASKS: Final = 10


@dataclass(frozen=True, slots=True)
class Verdict:
    """``holds`` is None where nothing was checked."""

    holds: bool | None
    told: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Anchors:
    """``waiting`` are the checkpoints after the last anchored one, of as many as were looked at;
    ``has_more`` says that none of those has an anchor, and older ones may."""

    last: CheckpointName | None
    waiting: int
    has_more: bool
    late_sec: int
    last_error: str | None
    verdict: Verdict
    made: Artefact | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoints:
    """``anchors`` is None where the settings want none. ``made`` is what a run has kept of the last
    checkpoint; None where it was made by hand."""

    checkpoint_id: str | None
    created_at: int | None
    total: int
    verdict: Verdict
    made: Artefact | None
    anchors: Anchors | None


def door_of(place: Place, random: Callable[[int], bytes]) -> Door:
    """What lies in the zone's own folders is enough; object storage is not asked."""
    return Door(place.recorder, None, random)


def checkpoints(
    place: Place, door: Door, found: Kept, *, now: int, may_read: MayRead
) -> Checkpoints:
    with reading("the checkpoints"):
        name = found.last.checkpoint_id.hex() if found.last else None
        return Checkpoints(
            checkpoint_id=name,
            created_at=found.last.created_at if found.last else None,
            total=found.total,
            verdict=_verdict(door, found),
            made=_made(place, "checkpoint", [name] if name else [], may_read),
            anchors=_anchors(place, door, found, now, may_read) if door.is_anchoring() else None,
        )


def _anchors(place: Place, door: Door, found: Kept, now: int, may_read: MayRead) -> Anchors:
    waiting, every = door.refs().after_last(found.names), door.settings.anchor
    cadence = AnchorCadence(
        every_checkpoints=every.every_checkpoints, every_minutes=every.every_minutes
    )
    covered = found.names[: len(found.names) - len(waiting)]
    last = covered[-1] if covered else None
    refs = door.refs().of(last.checkpoint_id) if last else []
    ids = [f"{last.checkpoint_id.hex()}-{one.kind}-{one.number}" for one in refs if last]
    return Anchors(
        last=last,
        waiting=len(waiting),
        has_more=last is None and found.total > len(found.names),
        late_sec=cadence.lateness(now, waiting).seconds,
        last_error=_last_error(door.home),
        verdict=_anchor_verdict(door, last, [one.anchor_ref for one in refs]),
        made=_made(place, "anchor", ids, may_read),
    )


def _made(place: Place, kind: str, ids: Sequence[str], may_read: MayRead) -> Artefact | None:
    found = seen_by_id(place.folder, kind, ids, may_read)
    return max(found.values(), key=lambda one: one.made_at, default=None)


def _last_error(home: Home) -> str | None:
    """Of the newest anchors that are still to be made."""
    for file in reversed(files(home.tasks)[-_TASKS:]):
        try:
            task = AnchorTask.decode((home.tasks / file).read_bytes())
        except FileNotFoundError:
            continue
        if task.attempts:
            return task.last_error
    return None


def _verdict(door: Door, found: Kept) -> Verdict:
    if found.last is None:
        return Verdict(None, "there is none yet")
    try:
        check.verify_next(found.last, found.earlier, _signed_by(door, found.last))
    except VeenError as error:
        return Verdict(False, str(error))
    return Verdict(True, "signed by the hub, and behind none before it")


def _signed_by(door: Door, document: RecorderCheckpoint) -> HubIdentity:
    return hub_papers.of_document(document, hub_papers.read(door.home.root))


def _anchor_verdict(door: Door, name: CheckpointName | None, refs: Sequence[bytes]) -> Verdict:
    path = door.settings.anchor.path
    if name is None:
        return Verdict(None, "none is there")
    if path is not None and path.exists() and path.stat().st_size > _LARGEST_LEDGER:
        return Verdict(None, "not checked here: veen recorder checkpoint verify --offline does it")
    anchor, document = door.anchor(), door.shelf().get(name)
    ours = [one for one in refs if kind_of(one) == anchor.kind]
    if not ours:
        return Verdict(None, "of a kind that is not configured any more")
    try:
        held = [book.verify(anchor, document, one) for one in ours]
    except VeenError as error:
        return Verdict(False, str(error))
    return Verdict(True, f"known to {held[-1].witness}, {held[-1].place}")
