"""The fixtures that these tests share with those of other folders."""

from __future__ import annotations

from support.cli.fixtures import forking, normalised

__all__ = ["forking", "normalised"]
