"""``veen version``: which software this is, and which protocol it speaks."""

from __future__ import annotations

import platform
from importlib import metadata
from typing import Final

from cli.console import show

PROTOCOL: Final = "0.0.1"


def version() -> None:
    """Print the version of the software and of the protocol it speaks.

    Example: veen version --json
    """
    found = metadata.version("veen")
    show(
        {
            "version": found,
            "protocol": PROTOCOL,
            "python": platform.python_version(),
            "libsodium": f"PyNaCl {metadata.version('pynacl')}",
        },
        f"veen {found} (VEEN protocol v{PROTOCOL})",
    )
