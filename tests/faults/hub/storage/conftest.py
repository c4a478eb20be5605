"""The fixtures that these tests share with those of other folders."""

from __future__ import annotations

from support.hub.storage_fixtures import bench, copy, crash_at, golden

__all__ = ["bench", "copy", "crash_at", "golden"]
