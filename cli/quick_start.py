"""Keeps httpx from loading a command line of its own: rich, pygments and click, for nothing."""

from __future__ import annotations

import sys
from typing import Any, cast

sys.modules.setdefault("httpx._main", cast("Any", None))
