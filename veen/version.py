"""The version of this software, which packages, services and documents take from here."""

from __future__ import annotations

VERSION = "0.0.1"
PROTOCOL = "0.0.1"
"""The version of the VEEN specification that is implemented."""
