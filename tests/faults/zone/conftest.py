"""The fixtures that these tests share with those of other folders."""

from __future__ import annotations

from support.zone.fixtures import a_zone

__all__ = ["a_zone"]
