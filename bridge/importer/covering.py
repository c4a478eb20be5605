"""A checkpoint of this zone's hub over what was imported, where the settings ask for it (AGB0 4.5).

Who makes and anchors it is not the bridge: its identity writes import streams and nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from bridge.audit_events import ImportCheckpoint
from bridge.importer.closing import close
from bridge.importer.ledger_tables import Closing, Uncovered
from bridge.importer.tools import Tools
from bridge.printable import printable
from veen.errors import VeenError
from veen.recorder_checkpoint import RecorderCheckpoint

_SIGNED: Final = "\nReceived by"
"""Where a printed receipt is signed by hand."""


@dataclass(frozen=True, slots=True)
class Covered:
    """``anchor`` is the name of the anchor beside the checkpoint; ``trouble`` why there is none,
    where there should be.
    """

    checkpoint: RecorderCheckpoint
    anchor: str | None = None
    trouble: str | None = None


Cover = Callable[[], Covered]
"""Has the hub make a checkpoint over all streams as they stand, and has it anchored."""


@dataclass(frozen=True, slots=True)
class Covering:
    """What became of it: ``covered``, and ``trouble`` where something is still to be done."""

    bundles: int
    covered: Covered | None
    trouble: str | None


def cover_imports(tools: Tools, cover: Cover) -> Covering | None:
    """Enter the checkpoint in the audit log and on the receipts; None when nothing waits for one.

    What fails is told, and tried again by the next run: the import itself is done.
    """
    waiting = tools.ledger.uncovered()
    if not waiting:
        return None
    due = [one.bundle_id for one in waiting]
    try:
        found = cover()
    except VeenError as error:
        return Covering(len(due), None, f"no checkpoint covers the import yet: {error}")
    beyond = _beyond(tools, waiting, found.checkpoint)
    if beyond is not None:
        return Covering(len(due), None, beyond)
    event = ImportCheckpoint(
        operator=tools.operator,
        checkpoint_id=found.checkpoint.checkpoint_id,
        checkpoint_at=found.checkpoint.created_at,
        log_root=found.checkpoint.log_root,
        bundles=len(due),
        anchor=found.anchor,
    )
    closing = Closing(
        token=tools.random(16),
        bodies=(tools.trail.body(event),),
        writes=tuple(_receipts(tools, due, found)),
    )
    tools.ledger.cover(due, closing)
    close(tools, closing)
    return Covering(len(due), found, found.trouble)


def _beyond(
    tools: Tools, waiting: Sequence[Uncovered], checkpoint: RecorderCheckpoint
) -> str | None:
    """What of the imports the checkpoint does not reach."""
    for one in waiting:
        row, plan = tools.ledger.bundle(one.bundle_id), tools.ledger.plan(one.bundle_id)
        last = plan.target_to if plan is not None else one.target_to
        if row is None or last is None:
            continue
        end = checkpoint.end(row.target)
        if end is None or end.last_seq < last:
            return (
                f"the checkpoint does not reach {printable(row.target)} {last}: does the "
                "hub know the stream under [[streams]]?"
            )
    return None


def _receipts(tools: Tools, due: Sequence[bytes], found: Covered) -> list[tuple[str, str]]:
    """The printed receipts, with the checkpoint on them."""
    line = f"Covered by  checkpoint {found.checkpoint.checkpoint_id.hex()}\n"
    if found.anchor is not None:
        line += f"            anchored as {found.anchor}\n"
    written = []
    for bundle_id in due:
        path = tools.airlock.receipts / f"{bundle_id.hex()}.txt"
        if path.exists():
            told, _, signed = path.read_text().rpartition(_SIGNED)
            written.append((tools.airlock.inside(path), f"{told}{line}{_SIGNED}{signed}"))
    return written
