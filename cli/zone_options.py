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
