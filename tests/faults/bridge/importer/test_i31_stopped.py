"""Imports that are told to stop, by SIGTERM or Ctrl-C, at any operation (I31): like a kill, with a
clear word and exit code besides.
"""

from __future__ import annotations

import random
import signal
from pathlib import Path
from typing import Any

import pytest

from support.long_form import LONG

pytestmark = pytest.mark.e2e

STOPPED = 130
DUPLICATE = 7


@pytest.mark.parametrize("sent", [signal.SIGTERM, signal.SIGINT], ids=["term", "int"])
def test_i31_stopped_at_any_operation_nothing_is_lost_doubled_or_unaudited(
    import_zone: Any, import_runner: Any, tmp_path: Path, sent: signal.Signals
) -> None:
    log = tmp_path / "said"
    more = {"signal": int(sent), "log": str(log)}
    code, detail = import_runner.run(import_zone, import_zone.medium(1, 2), die_at=0, **more)
    assert code == 0, log.read_text()
    count, last = detail[2], 2
    rounds = min(count, 200) if LONG else 5
    stopped = 0
    for at in sorted(random.Random(f"i31 {sent}").sample(range(1, count + 1), rounds)):
        medium = import_zone.medium(last + 1, last + 2)
        code, _ = import_runner.run(import_zone, medium, die_at=at, **more)
        output = log.read_text()
        assert code in (STOPPED, 0), (at, output)
        stopped += code == STOPPED
        assert code == 0 or "run veen bridge import again" in output, at
        assert "Traceback" not in output
        code, _ = import_runner.run(import_zone, medium, die_at=0, **more)
        assert code in (0, DUPLICATE), (at, log.read_text())
        last += 2
    assert stopped > rounds // 2
    import_zone.check(list(range(1, last + 1)))
