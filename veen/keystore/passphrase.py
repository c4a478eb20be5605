"""Passphrase files: one line that opens the keystore of an identity."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from veen.system.config import BadSettings

_MAX_BYTES: Final = 4096


def read_passphrase(file: Path) -> bytes:
    """The passphrase in a file, without the end of its line."""
    with file.open("rb") as source:
        raw = source.read(_MAX_BYTES + 1)
    line = raw.removesuffix(b"\n").removesuffix(b"\r")
    if not line or len(raw) > _MAX_BYTES or b"\n" in line:
        raise BadSettings(f"{file}: expected one line of at most {_MAX_BYTES} bytes")
    return line
