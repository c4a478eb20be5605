"""Keeps httpx from importing its command line: rich, pygments and click."""

from __future__ import annotations

import sys
from typing import Any, cast

sys.modules.setdefault("httpx._main", cast("Any", None))
