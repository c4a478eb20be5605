"""The fixtures that these tests share with those of other folders."""

from __future__ import annotations

from support.plugins.fixtures import make_zone, make_zone_in

__all__ = ["make_zone", "make_zone_in"]
