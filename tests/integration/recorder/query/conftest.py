"""The fixtures that these tests share with those of other folders."""

from __future__ import annotations

from support.recorder.query_fixtures import a_descriptor, a_query, new_log

__all__ = ["a_descriptor", "a_query", "new_log"]
