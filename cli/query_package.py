"""A proof package as a file that was given on the command line."""

from __future__ import annotations

from pathlib import Path

from recorder.query.package import Package
from veen.errors import Malformed


def read_package(path: Path) -> Package:
    """The package in a file; a refusal names the file."""
    try:
        return Package.decode(path.read_bytes())
    except Malformed as error:
        raise Malformed(
            f"{path} is no evidence package as veen query proof writes it: {error}; fetch it again"
        ) from error
