"""The fixtures that these tests share with those of other folders."""

from __future__ import annotations

from support.bridge.fixtures import grown, long, verdict, yard

__all__ = ["grown", "long", "verdict", "yard"]
