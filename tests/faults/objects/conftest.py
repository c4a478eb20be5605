"""The fixtures that these tests share with those of other folders."""

from __future__ import annotations

from support.objects.fixtures import moto, retention, settings, store

__all__ = ["moto", "retention", "settings", "store"]
