"""A configuration file as it is read: whatever is wrong with it, the error names the file."""

from __future__ import annotations

import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from veen.settings_table import BadSettings

T = TypeVar("T")


def read(path: Path, parse: Callable[[dict[str, Any]], T], example: str) -> T:
    """What ``parse`` makes of the document; ``example`` shows what such a file looks like."""
    try:
        document = tomllib.loads(path.read_text())
    except OSError as error:
        raise BadSettings(f"{path}: {error.strerror}; see {example}") from error
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise BadSettings(f"{path}: not TOML: {error}") from error
    try:
        return parse(document)
    except BadSettings as error:
        raise BadSettings(f"{path}: {error}") from error
