"""The fixtures that these tests share with those of other folders."""

from __future__ import annotations

from support.recorder.index_fixtures import long

__all__ = ["long"]
