"""The database of the query service as earlier releases left it."""

from __future__ import annotations

from typing import Final

BEFORE_5: Final = """
DROP TRIGGER count_added; DROP TRIGGER count_deleted; DROP TRIGGER count_moved;
DROP TRIGGER to_expire; DROP TABLE state_counts; DROP TABLE unexpired; DROP TABLE unremoved;
DROP INDEX request_places; DROP INDEX result_places; DROP INDEX begun_audits;
PRAGMA user_version = 4;
"""
"""What leads from version 5 back to version 4."""
