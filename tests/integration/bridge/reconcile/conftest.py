"""The fixtures that these tests share with those of other folders."""

from __future__ import annotations

from support.bridge.reconcile_fixtures import real_history_count, spark_history_count, veen

__all__ = ["real_history_count", "spark_history_count", "veen"]
