"""For `veen hub retention` in a test: a clock that is ahead by VEEN_TEST_AHEAD_SEC."""

import os
import sys
import time

_AHEAD = int(os.environ.get("VEEN_TEST_AHEAD_SEC", "0"))
_time = time.time


def _later() -> float:
    return _time() + _AHEAD


if _AHEAD and "retention" in sys.orig_argv:
    time.time = _later
