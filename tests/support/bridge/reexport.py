"""Make a bundle and its carriers, and print the hash of every file: run in many surroundings."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from bridge.carrier.format import CarrierLedger, Packing, Preset
from bridge.carrier.writer import Content, stage
from support.bridge import bridge_world as world
from veen.digest import h

PACKINGS = (
    Preset.ANY.packing(),
    Packing(volume_bytes=900, volumes_per_bag=2, parity=2),
    Packing(volume_bytes=900, compress=True),
)


def main() -> None:
    raw = world.World().grow(6).bundle(2, 5)
    ledger = CarrierLedger(bridge_id=h(b"bridge")).with_bundle(world.parts(raw)[0])
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "bundle"
        file.write_bytes(raw)
        for number, packing in enumerate(PACKINGS):
            staging = Path(folder) / str(number)
            staging.mkdir()
            stage(Content(file=file, ledger=ledger), packing, world.EXPORTER, staging)
            for path in sorted(path for path in staging.rglob("*") if path.is_file()):
                line = f"{h(path.read_bytes()).hex()} {path.relative_to(folder)}\n"
                sys.stdout.write(line)


if __name__ == "__main__":
    main()
