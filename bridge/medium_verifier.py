"""The standalone verifier on every medium: one file that checks carriers where nothing of this
program is installed. Its name has its hash; docs/bridge-format.md has it too.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import Final

from bridge.carrier.directory import Directory
from bridge.carrier.medium import BadMedium, read_small, write_file
from veen.digest import h

SOURCE: Final = Path(__file__).with_name("standalone_verifier.py")
_NAME_DIGITS: Final = 16


def verifier_name() -> str:
    return f"agb0-verifier-{h(SOURCE.read_bytes()).hex()[:_NAME_DIGITS]}.py"


def has_verifier(medium: Path) -> bool:
    """Whether it lies there; other bytes under its name are refused: people would run them."""
    raw, name = SOURCE.read_bytes(), verifier_name()
    with Directory.root(medium) as root:
        if not root.exists(name):
            return False
        if read_small(root, name, len(raw) + 1) != raw:
            raise BadMedium(
                f"{medium / name}: expected the verifier whose hash is in its name, got other "
                "bytes; do not run it, and take another medium"
            )
        return True


def put_verifier(medium: Path) -> None:
    """Write the verifier to the root of a medium, whole or not at all."""
    if has_verifier(medium):
        return
    name = verifier_name()
    with Directory.root(medium) as root:
        partial = f"{name}.part"
        with suppress(FileNotFoundError):
            os.unlink(partial, dir_fd=root.fd)
        write_file(SOURCE, root, partial)
        os.rename(partial, name, src_dir_fd=root.fd, dst_dir_fd=root.fd)
        root.sync()
