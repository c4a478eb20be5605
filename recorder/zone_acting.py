"""Who acts for the DAGs of a zone, who must agree to an import, and what folds may leave behind."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from veen.settings_table import Table

_MOST_PEOPLE: Final = 9


@dataclass(frozen=True, slots=True, kw_only=True)
class ActingSettings:
    """The identity that makes checkpoints and records reports; without one, the recorder's own.

    ``escrow`` is the card that the hub's keys are sealed to in the archive.
    """

    client: Path | None
    principal: str | None
    passphrase_file: Path | None
    capability: Path | None
    escrow: Path | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ApprovalSettings:
    """So many different people let an import in; where ``people`` are named, only they may."""

    needed: int
    people: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class FoldSettings:
    """``plaintext_at_rest`` lets the table of events be written, in the clear, to the store."""

    overlay: str
    streams: tuple[str, ...]
    plaintext_at_rest: bool


def acting_settings(table: Table) -> ActingSettings:
    found = ActingSettings(
        client=table.path("client", None),
        principal=table.text("principal", None),
        passphrase_file=table.path("passphrase_file", None),
        capability=table.path("capability", None),
        escrow=table.path("escrow", None),
    )
    table.done()
    return found


def approval_settings(table: Table) -> ApprovalSettings:
    found = ApprovalSettings(
        needed=table.number("needed", 1, least=1, most=_MOST_PEOPLE), people=table.texts("people")
    )
    table.done()
    if found.people and len(found.people) < found.needed:
        table.refuse("people", list(found.people), f"{found.needed} different people are needed")
    return found


def fold_settings(table: Table) -> FoldSettings:
    found = FoldSettings(
        overlay=table.text("overlay", "recorder.statistics"),
        streams=table.texts("streams"),
        plaintext_at_rest=table.flag("plaintext_at_rest", default=False),
    )
    table.done()
    return found
