"""A checkpoint of this zone's hub over what was imported, where the settings ask for it (AGB0 4.5).

Who makes and anchors it is not the bridge: its identity writes import streams and nothing else.

Changes of whom a zone believes: in its audit log before a carrier is judged by them (AGB0 4.6).

What people have entered is told in their words. What the files say and nobody has entered is told
as found by the run that finds it. The trust that a zone begins with is no change.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from bridge.audit_log import ImportCheckpoint, TrustChanged
from bridge.errors import printable
from bridge.importer.context import ImportContext
from bridge.importer.finish import apply_pending, pending_actions
from bridge.importer.ledger import PendingActions, Uncovered
from bridge.trust import FILE, TrustChange
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


def cover_imports(tools: ImportContext, cover: Cover) -> Covering | None:
    """Enter the checkpoint in the audit log and on the receipts; None when nothing waits for one.

    What fails is told, and tried again by the next run: the import itself is done.
    """
    waiting = tools.ledger.uncovered()
    if not waiting:
        return None
    due = [uncovered.bundle_id for uncovered in waiting]
    try:
        result = cover()
    except VeenError as error:
        return Covering(len(due), None, f"no checkpoint covers the import yet: {error}")
    beyond = _beyond(tools, waiting, result.checkpoint)
    if beyond is not None:
        return Covering(len(due), None, beyond)
    event = ImportCheckpoint(
        operator=tools.operator,
        checkpoint_id=result.checkpoint.checkpoint_id,
        checkpoint_at=result.checkpoint.created_at,
        log_root=result.checkpoint.log_root,
        bundles=len(due),
        anchor=result.anchor,
    )
    closing = PendingActions(
        token=tools.random(16),
        bodies=(tools.audit_outbox.body(event),),
        writes=tuple(_receipts(tools, due, result)),
    )
    tools.ledger.cover(due, closing)
    apply_pending(tools, closing)
    return Covering(len(due), result, result.trouble)


def _beyond(
    tools: ImportContext, waiting: Sequence[Uncovered], checkpoint: RecorderCheckpoint
) -> str | None:
    """What of the imports the checkpoint does not reach."""
    for uncovered in waiting:
        row, plan = tools.ledger.bundle(uncovered.bundle_id), tools.ledger.plan(uncovered.bundle_id)
        last = plan.target_to if plan is not None else uncovered.target_to
        if row is None or last is None:
            continue
        end = checkpoint.end(row.target)
        if end is None or end.last_seq < last:
            return (
                f"the checkpoint does not reach {printable(row.target)} {last}: does the "
                "hub know the stream under [[streams]]?"
            )
    return None


def _receipts(
    tools: ImportContext, due: Sequence[bytes], covered: Covered
) -> list[tuple[str, str]]:
    """The printed receipts, with the checkpoint on them."""
    line = f"Covered by  checkpoint {covered.checkpoint.checkpoint_id.hex()}\n"
    if covered.anchor is not None:
        line += f"            anchored as {covered.anchor}\n"
    written = []
    for bundle_id in due:
        path = tools.airlock.receipts / f"{bundle_id.hex()}.txt"
        if path.exists():
            detail, _, signed = path.read_text().rpartition(_SIGNED)
            written.append((tools.airlock.inside(path), f"{detail}{line}{_SIGNED}{signed}"))
    return written


_NAME: Final = "trust"
_LINE: Final = 4000


class TrustHistory(NamedTuple):
    """What the log tells: the files that a directory had, where that is known, and changes."""

    files: frozenset[str] | None
    changes: frozenset[TrustChange]

    @classmethod
    def of(cls, events: Iterable[TrustChanged]) -> TrustHistory:
        """As the entries of a log tell it, for a ledger that is made again."""
        files, changes = None, set()
        for event in events:
            if event.believed is not None:
                files = frozenset(event.believed.splitlines())
            if event.changed_at is not None:
                changes.add(TrustChange(event.changed_at, event.operator, event.change))
        return cls(files, frozenset(changes))

    @classmethod
    def decode(cls, raw: bytes | None) -> TrustHistory:
        document = json.loads(raw or b"[null, []]")
        files = None if document[0] is None else frozenset(document[0])
        return cls(files, frozenset(TrustChange(*item) for item in document[1]))

    def encode(self) -> tuple[str, bytes]:
        """As the import ledger keeps it."""
        files = None if self.files is None else sorted(self.files)
        return _NAME, json.dumps([files, sorted(self.changes)]).encode()


def tell_trust(tools: ImportContext) -> None:
    """Every change since the last run is in the log on return, or AuditPending is raised."""
    detail, files = TrustHistory.decode(tools.ledger.reported(_NAME)), frozenset(tools.trust.files)
    new = [fromkey for fromkey in dict.fromkeys(tools.changes) if fromkey not in detail.changes]
    now = TrustHistory(files, detail.changes | frozenset(new))
    if now == detail:
        return
    events = [
        *(TrustChanged(operator=item.who, changed_at=item.at, change=item.what) for item in new),
        *(
            TrustChanged(operator=tools.operator, change=f"{item}; nobody has entered it in {FILE}")
            for item in _unentered(detail.files, files, new)
        ),
    ]
    if not events:
        tools.ledger.note_text(now.encode())
        return
    events[-1] = replace(events[-1], believed="\n".join(sorted(files)))
    closing = pending_actions(tools, events)
    tools.ledger.conclude(None, closing, detail=now.encode())
    apply_pending(tools, closing)


def _unentered(
    before: frozenset[str] | None, files: frozenset[str], new: Sequence[TrustChange]
) -> list[str]:
    """How the files differ from those before, beside what the new changes tell."""
    if before is None:
        return []
    entered = [change.what for change in new]
    added = [file for file in sorted(files - before) if not _is_entered(file, entered)]
    still = {_subject(file) for file in files}
    gone = [file for file in sorted(before - files) if _subject(file) not in still]
    return [f"added {item}"[:_LINE] for item in added] + [
        f"removed {item}"[:_LINE] for item in gone
    ]


def _is_entered(line: str, entered: Sequence[str]) -> bool:
    """By all that stands before a reason, which files and people may write in other ways."""
    return any(line.partition(":")[0] in item for item in entered)


def _subject(line: str) -> tuple[str, ...]:
    """The hub, the exporter or the revocation that a line is about."""
    return tuple(line.partition(":")[0].split()[:2])
