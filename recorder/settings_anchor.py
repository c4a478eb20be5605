"""The part of the recorder's settings that says when to checkpoint, and where to anchor."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from veen.settings_table import Table

_KINDS: Final = ("file", "rfc3161", "none")
_YEAR_OF_MINUTES: Final = 527_040
_MANY: Final = 1_000_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointSettings:
    """A checkpoint is due after so many minutes or events; 0 is never by that measure.

    ``path`` is the directory in which checkpoints and their anchors are kept.
    """

    path: Path
    every_minutes: int
    every_events: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AnchorSettings:
    """``path`` is the ledger of kind "file"; the rest of the places is for kind "rfc3161"."""

    kind: str
    path: Path | None
    tsa_url: str | None
    tsa_certificates: tuple[Path, ...]
    tsa_policy: str | None
    every_checkpoints: int
    every_minutes: int


def checkpoint_settings(table: Table) -> CheckpointSettings:
    found = CheckpointSettings(
        path=table.path("path", "checkpoints"),
        every_minutes=table.number("every_minutes", 5, least=0, most=_YEAR_OF_MINUTES),
        every_events=table.number("every_events", 10_000, least=0, most=_MANY),
    )
    table.done()
    if not found.every_minutes and not found.every_events:
        table.refuse("every_minutes", 0, "with every_events = 0 no checkpoint would ever be made")
    return found


def anchor_settings(table: Table) -> AnchorSettings:
    kind = table.choice("kind", _KINDS, "file")
    _refuse_of_other_kind(table, kind)
    found = AnchorSettings(
        kind=kind,
        path=table.path("path", "anchors.ledger" if kind == "file" else None),
        tsa_url=table.url("tsa_url", None),
        tsa_certificates=table.paths("tsa_certificates"),
        tsa_policy=table.text("tsa_policy", None),
        every_checkpoints=table.number("every_checkpoints", 1, least=0, most=_MANY),
        every_minutes=table.number("every_minutes", 0, least=0, most=_YEAR_OF_MINUTES),
    )
    table.done()
    if kind == "rfc3161" and (found.tsa_url is None or not found.tsa_certificates):
        table.refuse("kind", kind, "it needs tsa_url and tsa_certificates")
    if kind != "none" and not found.every_checkpoints and not found.every_minutes:
        table.refuse("every_checkpoints", 0, "with every_minutes = 0 nothing is ever anchored")
    return found


def _refuse_of_other_kind(table: Table, kind: str) -> None:
    tsa = (("tsa_url", "rfc3161"), ("tsa_certificates", "rfc3161"), ("tsa_policy", "rfc3161"))
    for key, owner in (("path", "file"), *tsa):
        if kind != owner and table.has(key):
            table.refuse("kind", kind, f"{key} goes with kind = {owner!r} only")
