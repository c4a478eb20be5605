"""Where the passphrase of a keystore comes from: a file, the environment or the terminal."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated, Final

import typer

from veen.keystore.directory import ClientDir

VARIABLE: Final = "VEEN_PASSPHRASE"
_MAX_BYTES: Final = 4096

PassphraseFileOption = Annotated[
    Path | None,
    typer.Option(
        "--passphrase-file", metavar="FILE", help=f"Else ${VARIABLE}, or it is asked for."
    ),
]


def new_passphrase(file: Path | None) -> bytes:
    """The passphrase of an identity to be made; asked for twice."""
    found = _given(file) or _asked("Passphrase for the new keystore", twice=True)
    if not found:
        raise typer.BadParameter(f"{_WAYS}, or leave the keys unprotected with --insecure-plain")
    return found


def passphrase_of(client: ClientDir, file: Path | None) -> bytes | None:
    """The passphrase of an identity; None where its keystore is plain."""
    if client.sealed().is_plain:
        if file is not None:
            raise typer.BadParameter(f"{client.keystore} is plain: leave out --passphrase-file")
        return None
    found = _given(file) or _asked(f"Passphrase of {client.keystore}", twice=False)
    if not found:
        raise typer.BadParameter(_WAYS)
    return found


_WAYS: Final = f"a passphrase is needed: give --passphrase-file, set {VARIABLE}, or use a terminal"


def _given(file: Path | None) -> bytes | None:
    if file is not None:
        return _read(file)
    # The bytes as they are, so that every way gives the same ones.
    return os.environb.get(VARIABLE.encode()) or None


def _read(file: Path) -> bytes:
    with file.open("rb") as source:
        found = source.read(_MAX_BYTES + 1)
    line = found.removesuffix(b"\n").removesuffix(b"\r")
    if not line or len(found) > _MAX_BYTES or b"\n" in line:
        raise typer.BadParameter(f"{file} is to hold one line of at most {_MAX_BYTES} bytes")
    return line


def _asked(what: str, *, twice: bool) -> bytes | None:
    if not sys.stdin.isatty():
        return None
    said: str = typer.prompt(what, hide_input=True, confirmation_prompt=twice, err=True)
    return os.fsencode(said)
