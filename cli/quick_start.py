"""Keeps httpx from importing what no command uses.

That is its command line (rich, pygments and click), and trio where it is installed.
"""

from __future__ import annotations

import sys
from typing import Any, cast

for _name in ("httpx._main", "httpcore._backends.trio"):
    sys.modules.setdefault(_name, cast("Any", None))
