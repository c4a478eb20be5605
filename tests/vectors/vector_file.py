"""Writing a file of vectors, or comparing it with what its script makes."""

from __future__ import annotations

import sys
from pathlib import Path


def write_vectors(target: Path, text: str) -> None:
    """Write the file; with ``--check``, exit with an error where it has another text."""
    if sys.argv[1:] != ["--check"]:
        target.write_text(text, "utf-8")
    elif not target.exists() or target.read_text("utf-8") != text:
        sys.exit(f"{target.name} is not what {Path(sys.argv[0]).name} makes")
