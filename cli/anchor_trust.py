"""What proves an anchor offline, as options: a ledger, or a time stamp authority's certificates."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from cli.checkpoint_options import moment
from recorder.anchor import book
from recorder.anchor.ledger import Ledger
from recorder.anchor.port import Anchor
from recorder.anchor.tsa_line import TsaLine
from recorder.checkpoints.door import time_stamps
from recorder.query.package_check import AnchorCheck
from veen.recorder_checkpoint import RecorderCheckpoint


@dataclass(frozen=True, slots=True, kw_only=True)
class AnchorTrust:
    ledger: Annotated[
        Path | None, typer.Option("--ledger", metavar="FILE", help="The ledger, or a copy of it.")
    ] = None
    tsa_certificate: Annotated[
        list[Path] | None,
        typer.Option("--tsa-certificate", metavar="PEM", help="Of the chain; may be repeated."),
    ] = None
    tsa_policy: Annotated[
        str | None, typer.Option("--tsa-policy", metavar="OID", help="The policy it must be under.")
    ] = None

    def given(self) -> dict[str, Anchor]:
        """The anchors that can be checked, by their kind."""
        found: list[Anchor] = []
        if self.ledger is not None:
            found.append(Ledger(self.ledger, os.urandom))
        if self.tsa_certificate:
            line = TsaLine(url="")
            found.append(time_stamps(tuple(self.tsa_certificate), self.tsa_policy, line))
        return {one.kind: one for one in found}

    def checks(self) -> dict[str, AnchorCheck]:
        """The same, as the check of a proof package asks for them."""
        return {kind: _check(anchor) for kind, anchor in self.given().items()}


def _check(anchor: Anchor) -> Callable[[RecorderCheckpoint, bytes], str]:
    def check(checkpoint: RecorderCheckpoint, ref: bytes) -> str:
        found = book.verify(anchor, checkpoint, ref)
        return f"{found.witness} knew the root at {moment(found.time)}"

    return check
