"""Where the tree, the tests, their helpers and their data lie."""

from __future__ import annotations

from pathlib import Path

SUPPORT = Path(__file__).parent
TESTS = SUPPORT.parent
ROOT = TESTS.parent
VECTORS = TESTS / "vectors"
GOLDEN = TESTS / "golden"
