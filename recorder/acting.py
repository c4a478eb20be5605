"""Settings of a zone: who acts for its DAGs, who approves an import, and what folds write.

DAG files read them at every parse, so nothing here imports cryptography.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from veen.system.config import Table

_MAX_PEOPLE: Final = 9


@dataclass(frozen=True, slots=True, kw_only=True)
class ActingSettings:
    """The identity that makes checkpoints and records reports; by default the recorder's own.

    ``escrow`` is the card that the hub's keys are sealed to in the archive.
    """

    client: Path | None
    principal: str | None
    passphrase_file: Path | None
    capability: Path | None
    escrow: Path | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ApprovalSettings:
    """How many different people must approve an import; if ``people`` are named, only they may."""

    needed: int
    people: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class FoldSettings:
    """``plaintext_at_rest`` permits writing the table of events to the store in the clear."""

    overlay: str
    streams: tuple[str, ...]
    plaintext_at_rest: bool


def acting_settings(table: Table) -> ActingSettings:
    settings = ActingSettings(
        client=table.path("client", None),
        principal=table.text("principal", None),
        passphrase_file=table.path("passphrase_file", None),
        capability=table.path("capability", None),
        escrow=table.path("escrow", None),
    )
    table.done()
    return settings


def approval_settings(table: Table) -> ApprovalSettings:
    settings = ApprovalSettings(
        needed=table.number("needed", 1, least=1, most=_MAX_PEOPLE), people=table.texts("people")
    )
    table.done()
    if settings.people and len(settings.people) < settings.needed:
        table.refuse(
            "people", list(settings.people), f"{settings.needed} different people are needed"
        )
    return settings


def fold_settings(table: Table) -> FoldSettings:
    settings = FoldSettings(
        overlay=table.text("overlay", "recorder.statistics"),
        streams=table.texts("streams"),
        plaintext_at_rest=table.flag("plaintext_at_rest", default=False),
    )
    table.done()
    return settings
