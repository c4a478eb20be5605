"""Verdicts on bags that were not copied: nothing of them is kept but hashes and the reason.

A bag that no trusted exporter has signed may be anything, and of any size. Whoever brings it can
bring it again; to keep it would let any medium fill the disk.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final

from bridge.audit_events import ImportFailed, ImportQuarantined
from bridge.carrier.bag_path import BagPath, carrier_name
from bridge.carrier.directory import LEADS_ELSEWHERE
from bridge.importer.audit_fields import failed_fields
from bridge.importer.closing import close
from bridge.importer.conclusion import closing_of
from bridge.importer.ledger_tables import Closing
from bridge.importer.outcome import Outcome, State
from bridge.importer.quarantined import HASHES, KEPT, REASON, code_of
from bridge.importer.signed_bag import digest_of, fingerprint
from bridge.importer.tools import Tools
from bridge.printable import printable
from bridge.refusal import Fault, Refused

MOST_ENTRIES: Final = 10_000
"""In quarantine; anybody can make many unsigned bags, and beyond it only the audit log has them."""
_LINE: Final = 4000


class Unsigned:
    def __init__(self, tools: Tools) -> None:
        self._tools = tools

    def on_medium(self, bag: BagPath, error: Refused, partial: Path | None = None) -> Outcome:
        """A bag of a medium, which is left as it is; ``partial`` is what was copied of it."""
        removals = () if partial is None else (self._tools.airlock.inside(partial),)
        return self._judge(bag, error, removals, is_left=False)

    def in_inbox(self, bag: BagPath, error: Refused) -> Outcome:
        """A bag of the inbox: one that may still be completed stays, any other is removed."""
        inside = self._tools.airlock.inside(bag.path)
        return self._judge(bag, error, (inside,), is_left=True)

    def _judge(
        self, bag: BagPath, error: Refused, removals: tuple[str, ...], *, is_left: bool
    ) -> Outcome:
        lines = fingerprint(bag)
        if _may_be_completed(error):
            return self._later(bag, error, lines, () if is_left else removals)
        return self._keep_hashes(bag, error, lines, removals)

    def _later(
        self, bag: BagPath, error: Refused, lines: list[str], removals: tuple[str, ...]
    ) -> Outcome:
        """Not finished, or not readable now. The same unfinished bag is audited once."""
        tools, digest, told = self._tools, digest_of(lines), printable(str(error), _LINE)
        name = carrier_name(bag.name)
        outcome = Outcome(
            state=State.INCOMPLETE, name=name, code=_code(error), told=told, place=str(bag)
        )
        is_unfinished = error.fault is Fault.INCOMPLETE
        if is_unfinished and tools.ledger.told(f"unfinished/{name}") == digest:
            return outcome
        fields = failed_fields(tools.operator, digest, None, error)
        event = ImportFailed(code=_code(error), told=told, **fields)
        closing = closing_of(tools, [event], removals=removals)
        noted = (f"unfinished/{name}", digest) if is_unfinished else None
        tools.ledger.conclude(None, closing, told=noted)
        close(tools, closing)
        return outcome

    def _keep_hashes(
        self, bag: BagPath, error: Refused, lines: list[str], removals: tuple[str, ...]
    ) -> Outcome:
        tools, digest, told = self._tools, digest_of(lines), printable(str(error), _LINE)
        folder = tools.airlock.quarantine(digest.hex())
        fields = failed_fields(tools.operator, digest, None, error)
        event = ImportQuarantined(code=_code(error), told=told, **fields)
        is_new = code_of(folder) != _code(error)
        has_room = (
            tools.quarantine_entries() < MOST_ENTRIES
            and tools.quarantine_bytes() < tools.settings.max_quarantine_bytes
        )
        reason = {
            "code": _code(error),
            "told": told,
            "received": [carrier_name(bag.name)],
            KEPT: HASHES,
            HASHES: lines,
        }
        place = f"{tools.airlock.inside(folder)}/{REASON}"
        writes = ((place, json.dumps(reason, sort_keys=True, indent=1) + "\n"),)
        closing = Closing(
            token=tools.random(16),
            bodies=(tools.trail.body(event),),
            writes=writes if is_new and has_room else (),
            removals=removals,
        )
        tools.ledger.conclude(None, closing)
        close(tools, closing)
        if is_new and has_room:
            tools.count_quarantined(len(writes[0][1]))
        return Outcome(
            state=State.QUARANTINED,
            name=carrier_name(bag.name),
            code=_code(error),
            told=f"{told}; nothing of it was copied, only its hashes are kept",
            place=str(folder) if has_room or not is_new else "",
        )


def _may_be_completed(error: Refused) -> bool:
    """It lacks its signature, or cannot be read at this moment; a link is neither."""
    cause = error.__cause__
    is_unreadable = isinstance(cause, OSError) and cause.errno not in LEADS_ELSEWHERE
    return error.fault is Fault.INCOMPLETE or is_unreadable


def _code(error: Refused) -> str:
    return f"{error.fault.code.value}/{error.fault.detail_enum}"
