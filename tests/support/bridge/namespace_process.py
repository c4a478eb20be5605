"""All of an importing zone, run where there is no network but loopback: python FILE DIRECTORY"""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))

from bridge.importer.rebuild import rebuild_ledger
from bridge.importer.run import ImportRequest
from support.bridge.importing_zone import Zone
from support.hub.hub_process import hub_in


def main() -> None:
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    root = Path(sys.argv[1])
    with hub_in(root / "hub") as hub:
        run = _run(Zone(root / "zone", hub, "namespace"))
    print(json.dumps(run | {"interfaces": [name for _, name in socket.if_nameindex()]}))


def _run(zone: Zone) -> dict[str, Any]:
    first = zone.medium(1, 3)
    states = [zone.states(first), zone.states(first), zone.states(zone.medium(6, 7))]
    zone.check([1, 2, 3])
    ledger = rebuild_ledger(zone.settings, ImportRequest(operator=zone.name), zone.around())
    return {"states": states, "rebuilt": ledger.events}


if __name__ == "__main__":
    main()
