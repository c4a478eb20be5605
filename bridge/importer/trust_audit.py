"""Audit entries about trust changes (AGB0 4.6).

A change of the trust store is in the audit log before a carrier is verified with it. Changes that
people entered are recorded as entered; a difference that nobody entered is recorded by the run that
detects it. The initial trust store of a zone is no change.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Final, NamedTuple

from bridge.audit_log import TrustChanged
from bridge.importer.context import ImportContext
from bridge.importer.finish import Completion, finish
from bridge.importer.ledger import LedgerChange, LedgerNote
from bridge.trust import FILE, TrustChange

_NAME: Final = "trust"
_LINE: Final = 4000


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

    def encode(self) -> LedgerNote:
        files = None if self.files is None else sorted(self.files)
        return LedgerNote(_NAME, json.dumps([files, sorted(self.changes)]).encode())


def audit_trust_changes(context: ImportContext) -> None:
    """Audit every change since the last run, or raise AuditPending."""
    recorded, files = (
        TrustHistory.decode(context.ledger.noted(_NAME)),
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
        context.ledger.note(now.encode())
        return
    events[-1] = replace(events[-1], believed="\n".join(sorted(files)))
    change = LedgerChange(notes=(now.encode(),))
    finish(context, Completion(events=tuple(events), change=change))


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
