"""Steady load on one hub; fails when the memory of one of its processes keeps growing.

python tests/support/hub/soak.py --minutes 10
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

sys.path.insert(0, str(Path(__file__).parents[2]))

from support.hub.hub_load import Producer, working
from support.hub.hub_process import OPEN, HubProcess
from support.hub.spec_objects import key

PRODUCERS = 4
SAMPLE_SEC = 10.0
GROWTH, GROWTH_MB = 1.2, 20.0


def memory(hub: HubProcess) -> dict[str, float]:
    """Resident megabytes of each process of the hub, by what it is."""
    names: dict[str, float] = {}
    for process in hub.processes():
        parent = process.ppid()
        kind = _kind(process.cmdline(), parent == hub.processes()[0].pid)
        names[f"{kind} {process.pid}"] = process.memory_info().rss / 1e6
    return names


def _kind(command: list[str], is_direct_child: bool) -> str:
    if "hub.sequencer" in command:
        return "sequencer"
    if "cli.main" in command:
        return "supervisor"
    return "master" if is_direct_child else "worker"


def grows(samples: list[float]) -> bool:
    """Whether the last fifth lies well above the second; the first is warming up."""
    fifth = len(samples) // 5
    early, late = median(samples[fifth : 2 * fifth]), median(samples[-fifth:])
    return late > early * GROWTH and late - early > GROWTH_MB


def soak(hub: HubProcess, minutes: float, sample_sec: float) -> dict[str, list[float]]:
    client = hub.client()
    producers = [
        Producer(client.writer(key(f"soak {n}"), f"record/{n % 2}")) for n in range(PRODUCERS)
    ]
    samples: dict[str, list[float]] = {}
    before = [0] * PRODUCERS
    end = time.monotonic() + 60 * minutes
    with working(hub, producers):
        while time.monotonic() < end:
            time.sleep(sample_sec)
            for name, megabytes in memory(hub).items():
                samples.setdefault(name, []).append(megabytes)
            sent = sum(len(producer.promised) for producer in producers)
            shown = ", ".join(f"{name} {values[-1]:.1f} MB" for name, values in samples.items())
            print(f"{sent} messages; {shown}", flush=True)
            now = [len(producer.promised) for producer in producers]
            assert all(map(int.__gt__, now, before)), "a producer stands still"
            before = now
    return samples


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--sample-sec", type=float, default=SAMPLE_SEC)
    given = parser.parse_args(argv)
    with tempfile.TemporaryDirectory(prefix="veen-soak-") as folder:
        hub = HubProcess(Path(folder), *OPEN)
        try:
            samples = soak(hub.start(), given.minutes, given.sample_sec)
        finally:
            hub.destroy()
    if any(len(values) < 10 for values in samples.values()):
        print("too few samples of a process: it was replaced, or the run was too short")
        return 1
    growing = [name for name, values in samples.items() if grows(values)]
    print(f"growing: {growing}" if growing else "no process keeps growing")
    return 1 if growing else 0


if __name__ == "__main__":
    sys.exit(main())
