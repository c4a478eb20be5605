"""Closing an outcome: its audit entry first, then files to where they belong (AGB0 4.6).

What is to be done was written down before; each step may be done twice, so that a closing that
was cut short is simply done again.
"""

from __future__ import annotations

from bridge.importer.ledger_tables import Closing
from bridge.importer.tools import Tools
from veen import durable


def close(tools: Tools, closing: Closing) -> None:
    """Do all of it, or raise AuditPending with nothing but the entry kept."""
    tools.trail.once(closing.token, closing.bodies)
    for path, text in closing.writes:
        target = tools.airlock.root / path
        tools.airlock.make_folder(target.parent)
        durable.write(target, text.encode())
    for source, target_name in closing.moves:
        tools.airlock.move(source, target_name)
    for name in closing.removals:
        tools.airlock.remove(name)
    tools.ledger.closed(closing)
