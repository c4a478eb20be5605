"""Whether tests run in their long form, with larger counts: make test-long."""

from __future__ import annotations

import os

LONG = bool(os.environ.get("VEEN_TEST_LONG"))
