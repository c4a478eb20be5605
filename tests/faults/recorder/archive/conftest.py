"""The fixtures that these tests share with those of other folders."""

from __future__ import annotations

from support.recorder.archive_fixtures import data, folder, moto, recorded, store

__all__ = ["data", "folder", "moto", "recorded", "store"]
