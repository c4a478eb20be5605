"""The options that the commands of a zone share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

DirectoryOption = Annotated[
    Path,
    typer.Option("--directory", metavar="DIR", help="A zone's folder, or one with such folders."),
]
OneDirectoryOption = Annotated[
    Path, typer.Option("--directory", metavar="DIR", help="The folder of the zone.")
]
ListenOption = Annotated[
    str,
    typer.Option("--listen", metavar="IP", help="Where Airflow and the query service listen."),
]
PortsOption = Annotated[
    str | None,
    typer.Option("--ports", metavar="N,N,N", help="Of hub, query service and Airflow."),
]
ApproverOption = Annotated[
    list[Path] | None,
    typer.Option(
        "--approver",
        metavar="CARD",
        help="Offline: who must sign each import, by identity_card.pub; repeat.",
    ),
]
TrustOption = Annotated[
    Path | None,
    typer.Option("--trust", metavar="DIR", help="Offline: handover/ of the online zone."),
]
MediumOption = Annotated[
    Path | None,
    typer.Option("--medium", metavar="DIR", help="Where media are mounted; else medium/."),
]
