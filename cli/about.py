"""``veen version``: which software this is, and which protocol it speaks."""

from __future__ import annotations

import platform
from importlib import metadata

from cli.console import show
from veen.version import PROTOCOL, VERSION


def version() -> None:
    """Print the version of the software and of the protocol it speaks.

    Example: veen version --json
    """
    show(
        {
            "version": VERSION,
            "protocol": PROTOCOL,
            "python": platform.python_version(),
            "libsodium": f"PyNaCl {metadata.version('pynacl')}",
        },
        f"veen {VERSION} (VEEN protocol v{PROTOCOL})",
    )
