"""The fixtures that these tests share with those of other folders."""

from __future__ import annotations

from support.dags.fixtures import database, pair

__all__ = ["database", "pair"]
