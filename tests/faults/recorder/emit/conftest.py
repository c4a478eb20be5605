"""The fixtures that these tests share with those of other folders."""

from __future__ import annotations

from support.recorder.emit_fixtures import world

__all__ = ["world"]
