"""The fixtures that these tests share with those of other folders."""

from __future__ import annotations

from support.bridge.fixtures import grown, verdict, yard

__all__ = ["grown", "verdict", "yard"]
