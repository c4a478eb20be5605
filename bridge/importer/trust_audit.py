"""Audit entries about trust changes, and checkpoints over what was imported (AGB0 4.5, 4.6).

A change of the trust store is in the audit log before a carrier is verified with it. Changes that
people entered are recorded as entered; a difference that nobody entered is recorded by the run that
detects it. The initial trust store of a zone is no change.

The bridge does not make or anchor checkpoints, since its identity writes import streams only; it
records that a checkpoint of this zone's hub covers an import, where the settings ask for it.
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
"""The line of a printed receipt for a signature by hand."""
_NAME: Final = "trust"
_LINE: Final = 4000


@dataclass(frozen=True, slots=True)
class Covered:
    """A covering checkpoint. ``anchor`` is the name of its anchor; ``trouble`` why there is none,
    if there should be.
    """

    checkpoint: RecorderCheckpoint
    anchor: str | None = None
    trouble: str | None = None


Cover = Callable[[], Covered]
"""Has the hub make a checkpoint over all streams, and anchors it."""


@dataclass(frozen=True, slots=True)
class Covering:
    """The result: ``covered``, and ``trouble`` if something is still to be done."""

    bundles: int
    covered: Covered | None
    trouble: str | None


def cover_imports(context: ImportContext, cover: Cover) -> Covering | None:
    """Enter a checkpoint in the audit log and on the receipts; None if no bundle waits for one.

    An error is returned, and the next run retries: the import itself is done.
    """
    waiting = context.ledger.uncovered()
    if not waiting:
        return None
    bundle_ids = [uncovered.bundle_id for uncovered in waiting]
    try:
        covered = cover()
    except VeenError as error:
        return Covering(len(bundle_ids), None, f"no checkpoint covers the import yet: {error}")
    beyond = _beyond(context, waiting, covered.checkpoint)
    if beyond is not None:
        return Covering(len(bundle_ids), None, beyond)
    event = ImportCheckpoint(
        operator=context.operator,
        checkpoint_id=covered.checkpoint.checkpoint_id,
        checkpoint_at=covered.checkpoint.created_at,
        log_root=covered.checkpoint.log_root,
        bundles=len(bundle_ids),
        anchor=covered.anchor,
    )
    pending = PendingActions(
        token=context.random(16),
        bodies=(context.audit_outbox.body(event),),
        writes=tuple(_receipts(context, bundle_ids, covered)),
    )
    context.ledger.cover(bundle_ids, pending)
    apply_pending(context, pending)
    return Covering(len(bundle_ids), covered, covered.trouble)


def _beyond(
    context: ImportContext, waiting: Sequence[Uncovered], checkpoint: RecorderCheckpoint
) -> str | None:
    """An error if the checkpoint does not reach an import."""
    for uncovered in waiting:
        row, plan = (
            context.ledger.bundle(uncovered.bundle_id),
            context.ledger.plan(uncovered.bundle_id),
        )
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
    context: ImportContext, bundle_ids: Sequence[bytes], covered: Covered
) -> list[tuple[str, str]]:
    """The printed receipts with the checkpoint added."""
    line = f"Covered by  checkpoint {covered.checkpoint.checkpoint_id.hex()}\n"
    if covered.anchor is not None:
        line += f"            anchored as {covered.anchor}\n"
    written = []
    for bundle_id in bundle_ids:
        path = context.import_dir.receipts / f"{bundle_id.hex()}.txt"
        if path.exists():
            text, _, signed = path.read_text().rpartition(_SIGNED)
            written.append((context.import_dir.inside(path), f"{text}{line}{_SIGNED}{signed}"))
    return written


class TrustHistory(NamedTuple):
    """The trust store according to the log: its files, if known, and its changes."""

    files: frozenset[str] | None
    changes: frozenset[TrustChange]

    @classmethod
    def of(cls, events: Iterable[TrustChanged]) -> TrustHistory:
        """The history from the entries of a log, for a rebuilt ledger."""
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
        return cls(files, frozenset(TrustChange(*change) for change in document[1]))

    def encode(self) -> tuple[str, bytes]:
        """Name and value in the import ledger."""
        files = None if self.files is None else sorted(self.files)
        return _NAME, json.dumps([files, sorted(self.changes)]).encode()


def audit_trust_changes(context: ImportContext) -> None:
    """Audit every change since the last run, or raise AuditPending."""
    recorded, files = (
        TrustHistory.decode(context.ledger.reported(_NAME)),
        frozenset(context.trust.files),
    )
    new = [change for change in dict.fromkeys(context.changes) if change not in recorded.changes]
    now = TrustHistory(files, recorded.changes | frozenset(new))
    if now == recorded:
        return
    events = [
        *(TrustChanged(operator=item.who, changed_at=item.at, change=item.what) for item in new),
        *(
            TrustChanged(
                operator=context.operator, change=f"{item}; nobody has entered it in {FILE}"
            )
            for item in _unentered(recorded.files, files, new)
        ),
    ]
    if not events:
        context.ledger.note_text(now.encode())
        return
    events[-1] = replace(events[-1], believed="\n".join(sorted(files)))
    pending = pending_actions(context, events)
    context.ledger.conclude(None, pending, detail=now.encode())
    apply_pending(context, pending)


def _unentered(
    before: frozenset[str] | None, files: frozenset[str], new: Sequence[TrustChange]
) -> list[str]:
    """Differences of the files that the new changes do not mention."""
    if before is None:
        return []
    entered = [change.what for change in new]
    added = [file for file in sorted(files - before) if not _is_entered(file, entered)]
    still = {_subject(file) for file in files}
    gone = [file for file in sorted(before - files) if _subject(file) not in still]
    return [f"added {line}"[:_LINE] for line in added] + [
        f"removed {line}"[:_LINE] for line in gone
    ]


def _is_entered(line: str, entered: Sequence[str]) -> bool:
    """Whether a change mentions the line, compared without its reason, which may differ."""
    return any(line.partition(":")[0] in change for change in entered)


def _subject(line: str) -> tuple[str, ...]:
    """The hub, the exporter or the revocation of a line."""
    return tuple(line.partition(":")[0].split()[:2])
