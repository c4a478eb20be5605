"""A descriptor from the command line: a file, or options for what most queries ask."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

Texts = list[str] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class DescriptorOptions:
    """What is asked."""

    descriptor: Annotated[
        str | None,
        typer.Option("--descriptor", metavar="FILE", help="All of it as JSON; - is stdin."),
    ] = None
    stream: Annotated[
        Texts, typer.Option("--stream", metavar="NAME", help="Where to look; repeatable.")
    ] = None
    subject: Annotated[
        str | None, typer.Option("--subject", metavar="ID", help="Only of this subject_id.")
    ] = None
    event_type: Annotated[
        Texts, typer.Option("--type", metavar="TYPE", help="Only of this type; repeatable.")
    ] = None
    from_time: Annotated[
        str | None, typer.Option("--from", metavar="TIME", help="Committed then or later.")
    ] = None
    to_time: Annotated[
        str | None, typer.Option("--to", metavar="TIME", help="Committed then or earlier.")
    ] = None
    field: Annotated[
        Texts, typer.Option("--field", metavar="PATH", help="Like payload.status; repeatable.")
    ] = None
    group_by: Annotated[
        Texts, typer.Option("--group-by", metavar="PATH", help="Of an aggregate; repeatable.")
    ] = None
    metric: Annotated[
        Texts, typer.Option("--metric", metavar="M", help="count, max(payload.x); repeatable.")
    ] = None
    evidence: Annotated[
        str, typer.Option("--evidence", metavar="MODE", help="none, spot or full.")
    ] = "full"
    sample_rate: Annotated[
        float | None, typer.Option("--sample-rate", metavar="R", help="For spot: 0 < R <= 1.")
    ] = None
    reason: Annotated[
        str | None, typer.Option("--reason", metavar="TEXT", help="Why; it is recorded too.")
    ] = None

    def document(self) -> dict[str, Any]:
        """The descriptor; the service fills in and checks the rest."""
        if self.descriptor is not None:
            return _read(self.descriptor)
        if not self.stream:
            raise typer.BadParameter("give --stream NAME, or --descriptor FILE with all of it")
        found: dict[str, Any] = {
            "scope": self.stream,
            "filter": {
                "subject_id": self.subject,
                "event_type": self.event_type or None,
                "time": {"from": self.from_time, "to": self.to_time},
            },
            "projection": self.field or ["*"],
            "evidence": {"mode": self.evidence, "sample_rate": self.sample_rate},
        }
        if self.metric:
            found["aggregate"] = {"group_by": self.group_by or [], "metrics": self.metric}
        return found | ({"meta": {"reason": self.reason}} if self.reason else {})


def _read(file: str) -> dict[str, Any]:
    text = sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()
    try:
        found = json.loads(text)
    except ValueError as error:
        raise typer.BadParameter(f"{file} is no JSON: {error}") from error
    if not isinstance(found, dict):
        raise typer.BadParameter(f"{file} is no JSON object")
    return found
