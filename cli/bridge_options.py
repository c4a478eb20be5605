"""Options that the commands of ``veen bridge`` share."""

from __future__ import annotations

import getpass
from pathlib import Path
from typing import Annotated, Final

import typer

from veen.errors import Malformed

NOTHING_TO_DO: Final = 6
"""The exit code if there is nothing to do."""
_KEY_BYTES: Final = 32

BridgeConfigOption = Annotated[
    Path,
    typer.Option(
        "--config", envvar="VEEN_BRIDGE", metavar="FILE", help="The bridge's settings (TOML)."
    ),
]
OperatorOption = Annotated[
    str | None,
    typer.Option("--operator", metavar="NAME", help="Operator; default: the system user."),
]
BagsArgument = Annotated[
    list[Path], typer.Argument(metavar="DIR...", help="Bags, or mount points of media.")
]
ZoneKeyOption = Annotated[
    list[Path] | None,
    typer.Option("--key", metavar="FILE", help="Private key of this zone, for sealed carriers."),
]


def operator_of(given: str | None) -> str:
    return given or getpass.getuser()


def zone_keys(files: list[Path] | None) -> tuple[bytes, ...]:
    return tuple(_zone_key(file) for file in files or ())


def _zone_key(path: Path) -> bytes:
    with path.open("rb") as file:
        text = file.read(2 * _KEY_BYTES + 2).strip()
    try:
        key = bytes.fromhex(text.decode("ascii"))
    except ValueError:
        key = b""
    if len(key) != _KEY_BYTES:
        raise Malformed(f"{path} is not a key of 64 hex digits; see veen bridge keys zone")
    return key
