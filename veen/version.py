"""The version of this software and of the protocol."""

from __future__ import annotations

VERSION = "0.0.1"
PROTOCOL = "0.0.1"
"""The version of the VEEN specification that is implemented."""
