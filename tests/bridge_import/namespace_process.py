"""All of an importing zone, run where there is no network but loopback: python FILE DIRECTORY"""

from __future__ import annotations

import importlib.util
import json
import socket
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

HERE = Path(__file__).parent


def _load(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, HERE / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(sys.modules[name])
    return sys.modules[name]


def main() -> None:
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    conftest, root = _load("conftest"), Path(sys.argv[1])
    with conftest._hub(root / "hub") as hub:
        zone = conftest._YARD.Zone(root / "zone", hub, "namespace")
        told = _run(zone)
    print(json.dumps(told | {"interfaces": [name for _, name in socket.if_nameindex()]}))


def _run(zone: Any) -> dict[str, Any]:
    from bridge.importer.rebuild import rebuild_ledger  # noqa: PLC0415
    from bridge.importer.run import Order  # noqa: PLC0415

    first = zone.medium(1, 3)
    states = [zone.states(first), zone.states(first), zone.states(zone.medium(6, 7))]
    zone.check([1, 2, 3])
    found = rebuild_ledger(zone.settings, Order(operator=zone.name), zone.around())
    return {"states": states, "rebuilt": found.events}


if __name__ == "__main__":
    main()
