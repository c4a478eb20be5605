"""Changes of whom a zone believes: in its audit log before a carrier is judged by them (AGB0 4.6).

What people have entered is told in their words. What the files say and nobody has entered is told
as found by the run that finds it. The trust that a zone begins with is no change.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Final, NamedTuple

from bridge.audit_events import TrustChanged
from bridge.importer.closing import close
from bridge.importer.conclusion import closing_of
from bridge.importer.tools import Tools
from bridge.trust_changes import FILE, Change

_NAME: Final = "trust"
_LINE: Final = 4000


class Told(NamedTuple):
    """What the log tells: the files that a directory had, where that is known, and changes."""

    files: frozenset[str] | None
    changes: frozenset[Change]

    @classmethod
    def of(cls, events: Iterable[TrustChanged]) -> Told:
        """As the entries of a log tell it, for a ledger that is made again."""
        files, changes = None, set()
        for one in events:
            if one.believed is not None:
                files = frozenset(one.believed.splitlines())
            if one.changed_at is not None:
                changes.add(Change(one.changed_at, one.operator, one.change))
        return cls(files, frozenset(changes))

    @classmethod
    def decode(cls, raw: bytes | None) -> Told:
        found = json.loads(raw or b"[null, []]")
        files = None if found[0] is None else frozenset(found[0])
        return cls(files, frozenset(Change(*one) for one in found[1]))

    def encode(self) -> tuple[str, bytes]:
        """As the import ledger keeps it."""
        files = None if self.files is None else sorted(self.files)
        return _NAME, json.dumps([files, sorted(self.changes)]).encode()


def tell_trust(tools: Tools) -> None:
    """Every change since the last run is in the log on return, or AuditPending is raised."""
    told, files = Told.decode(tools.ledger.told(_NAME)), frozenset(tools.trust.files)
    new = [one for one in dict.fromkeys(tools.changes) if one not in told.changes]
    now = Told(files, told.changes | frozenset(new))
    if now == told:
        return
    events = [
        *(TrustChanged(operator=one.who, changed_at=one.at, change=one.what) for one in new),
        *(
            TrustChanged(operator=tools.operator, change=f"{one}; nobody has entered it in {FILE}")
            for one in _unentered(told.files, files, new)
        ),
    ]
    if not events:
        tools.ledger.note_told(now.encode())
        return
    events[-1] = replace(events[-1], believed="\n".join(sorted(files)))
    closing = closing_of(tools, events)
    tools.ledger.conclude(None, closing, told=now.encode())
    close(tools, closing)


def _unentered(
    before: frozenset[str] | None, files: frozenset[str], new: Sequence[Change]
) -> list[str]:
    """How the files differ from those before, beside what the new changes tell."""
    if before is None:
        return []
    entered = [one.what for one in new]
    added = [one for one in sorted(files - before) if not _is_entered(one, entered)]
    still = {_subject(one) for one in files}
    gone = [one for one in sorted(before - files) if _subject(one) not in still]
    return [f"added {one}"[:_LINE] for one in added] + [f"removed {one}"[:_LINE] for one in gone]


def _is_entered(line: str, entered: Sequence[str]) -> bool:
    """By all that stands before a reason, which files and people may write in other ways."""
    return any(line.partition(":")[0] in one for one in entered)


def _subject(line: str) -> tuple[str, ...]:
    """The hub, the exporter or the revocation that a line is about."""
    return tuple(line.partition(":")[0].split()[:2])
