"""The last checkpoint and its anchors, verified while the page is made, without the hub."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from veen_page_streams import Kept
from veen_page_zone import Place, reading

from recorder.anchor import book
from recorder.anchor.book import BookStatus
from recorder.anchor.port import kind_of
from recorder.checkpoints import check, hub_papers
from recorder.checkpoints.door import Door
from recorder.checkpoints.home import CheckpointName
from veen.errors import VeenError
from veen.hub_identity import HubIdentity
from veen.recorder_checkpoint import RecorderCheckpoint

_LARGEST_LEDGER: Final = 1 << 20
"""Beyond it a page would wait: an anchor is proven by reading all of its ledger."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """``holds`` is None where nothing was checked."""

    holds: bool | None
    told: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoints:
    """``anchors`` is None where the settings want none."""

    checkpoint_id: str | None
    created_at: int | None
    verdict: Verdict
    anchors: BookStatus | None
    anchored_id: str | None
    anchor_verdict: Verdict


def door_of(place: Place, random: Callable[[int], bytes]) -> Door:
    """What lies in the zone's own folders is enough; object storage is not asked."""
    return Door(place.recorder, None, random)


def checkpoints(door: Door, found: Kept, *, now: int) -> Checkpoints:
    with reading("the checkpoints"):
        anchoring = door.is_anchoring()
        anchored = _last_anchored(door) if anchoring else None
        return Checkpoints(
            checkpoint_id=found.last.checkpoint_id.hex() if found.last else None,
            created_at=found.last.created_at if found.last else None,
            verdict=_verdict(door, found),
            anchors=door.book().status(now) if anchoring else None,
            anchored_id=anchored.checkpoint_id.hex() if anchored else None,
            anchor_verdict=_anchor_verdict(door, anchored),
        )


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


def _last_anchored(door: Door) -> CheckpointName | None:
    ids = door.refs().anchored()
    return max((one for one in door.shelf().names() if one.checkpoint_id in ids), default=None)


def _anchor_verdict(door: Door, name: CheckpointName | None) -> Verdict:
    path = door.settings.anchor.path
    if name is None:
        return Verdict(None, "none is there")
    if path is not None and path.exists() and path.stat().st_size > _LARGEST_LEDGER:
        return Verdict(None, "not checked here: veen recorder checkpoint verify --offline does it")
    anchor, document = door.anchor(), door.shelf().get(name)
    refs = [one.anchor_ref for one in door.refs().of(name.checkpoint_id)]
    ours = [one for one in refs if kind_of(one) == anchor.kind]
    if not ours:
        return Verdict(None, "of a kind that is not configured any more")
    try:
        held = [book.verify(anchor, document, one) for one in ours]
    except VeenError as error:
        return Verdict(False, str(error))
    return Verdict(True, f"known to {held[-1].witness}, {held[-1].place}")
