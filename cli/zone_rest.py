"""The hub of a running zone, stopped and started by hand: its supervisor is asked to do it.

A supervisor does not let its hub stay down, so ``veen hub stop`` alone would not last. While the
file ``hub.rest`` is there the hub rests, and ``hub.resting`` says that it does.
"""

from __future__ import annotations

import shlex
import time
from pathlib import Path
from typing import Final

from cli import zone_state as states
from cli.failure import Refused
from cli.zone_home import ZoneHome
from recorder.zone import FILE
from recorder.zone import load as load_zone
from veen import durable
from veen.errors import VeenError

_WAIT_SEC: Final = 60.0
_LOOK_SEC: Final = 0.1


def supervised(data_dir: Path) -> ZoneHome | None:
    """The zone whose supervisor runs the hub of this directory; None where none does."""
    home = ZoneHome(data_dir.parent)
    if not (home.root / FILE).exists():
        return None
    try:
        zone = load_zone(home.file)
    except VeenError:
        return None
    is_its_hub = zone.hub_data.resolve() == data_dir
    return home if is_its_hub and states.is_held(home) else None


def rest(home: ZoneHome) -> None:
    """Have the supervisor stop the hub, and leave it stopped until ``wake``."""
    durable.write(home.rest, b"")
    if not _comes(home.resting, is_there=True):
        home.rest.unlink(missing_ok=True)
        raise Refused(
            f"the supervisor of {home.root} did not stop its hub within {_WAIT_SEC:.0f} s; "
            f"see veen zone status --directory {shlex.quote(str(home.root))}"
        )


def wake(home: ZoneHome) -> None:
    """Have the supervisor start the hub again."""
    home.rest.unlink(missing_ok=True)
    if not _comes(home.resting, is_there=False):
        raise Refused(
            f"the supervisor of {home.root} did not start its hub within {_WAIT_SEC:.0f} s; "
            f"see veen zone status --directory {shlex.quote(str(home.root))}"
        )


def _comes(file: Path, *, is_there: bool) -> bool:
    deadline = time.monotonic() + _WAIT_SEC
    while file.exists() is not is_there:
        if time.monotonic() > deadline:
            return False
        time.sleep(_LOOK_SEC)
    return True
