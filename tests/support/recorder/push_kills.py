"""Kill a push at random points of it, many times, and look each time at what is left.

python push_kills.py DATA FOLDER TURNS SEED
"""

from __future__ import annotations

import os
import random
import signal
import sys
import time
from pathlib import Path

from recorder.archive.push import push
from recorder.archive.source import PushSource
from recorder.archive.store import HubArchive
from recorder.archive.verify import check
from veen.limits import Limits
from veen.objects.port import FileSettings, Store
from veen.objects.store import open_store


def quiet(_done: int, _total: int | None) -> None:
    pass


def contents(store: Store) -> dict[str, bytes]:
    return {key: store.objects.get(key) for key in store.objects.keys()}  # noqa: SIM118


def run(data: Path, folder: Path) -> float:
    begun = time.perf_counter()
    store = open_store(FileSettings(folder))
    push(PushSource(data, Limits()), store, sealer=None, progress=quiet)
    return time.perf_counter() - begun


def killed_after(data: Path, folder: Path, seconds: float) -> bool:
    """Whether a push was still running when it was killed."""
    child = os.fork()
    if child == 0:
        run(data, folder)
        os._exit(0)
    time.sleep(seconds)
    os.kill(child, signal.SIGKILL)
    return os.WIFSIGNALED(os.waitpid(child, 0)[1])


def main(data: Path, root: Path, turns: int, chance: random.Random) -> None:
    seconds = min(run(data, root / "whole"), run(data, root / "also whole"))
    whole = open_store(FileSettings(root / "whole"))
    hub_id = PushSource(data, Limits()).documents().identity.hub_id
    due, head = contents(whole), HubArchive(whole, hub_id).head().value
    cut = resumed = 0
    while cut < turns:
        folder = root / f"cut {cut} {resumed}"
        if not killed_after(data, folder, chance.uniform(0, seconds)):
            resumed += 1
            continue
        store = open_store(FileSettings(folder))
        left = contents(store)
        assert left.items() <= due.items(), "a part of an object was left"
        value = HubArchive(store, hub_id).head().value
        assert value is None or left == due, "the head came before what it stands on"
        result = push(PushSource(data, Limits()), store, sealer=None, progress=quiet)
        assert result.new_objects == (len(due) - len(left)), "what was there was put again"
        assert (contents(store), HubArchive(store, hub_id).head().value) == (due, head)
        cut += 1
    assert check(HubArchive(store, hub_id), read_all=True, progress=quiet).ok
    print(cut)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]), random.Random(int(sys.argv[4])))
