"""The fixtures that these tests share with those of other folders."""

from __future__ import annotations

from support.recorder.emit_fixtures import offline, open_emitter, world

__all__ = ["offline", "open_emitter", "world"]
