"""The fixtures that these tests share with those of other folders."""

from __future__ import annotations

from support.bridge.reconcile_fixtures import history_count

__all__ = ["history_count"]
