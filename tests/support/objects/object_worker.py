"""One of several processes that use a store: it says "ready", waits for a line, and goes on.

    object_worker.py WHAT NUMBER COUNT PLACE [ENDPOINT]

PLACE is a directory, or a prefix of the bucket behind ENDPOINT.
"""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Callable
from pathlib import Path

from veen.objects.port import HeadMoved, HeadStore, ObjectConflict, ObjectStore


def opened(place: str, endpoint: str) -> tuple[ObjectStore, HeadStore]:
    if endpoint:
        sys.path.insert(0, str(Path(__file__).parents[2]))
        from support.objects.object_servers import KEYS, s3_settings  # noqa: PLC0415
        from veen.objects.store import open_store  # noqa: PLC0415

        store = open_store(s3_settings(endpoint, place), KEYS)
        return store.objects, store.heads
    # Without the libraries of S3 a process starts in a third of the time.
    from veen.objects.files import (  # noqa: PLC0415
        FileHeads,
        FileObjects,
        StoreLayout,
    )

    layout = StoreLayout(Path(place))
    layout.prepare()
    return FileObjects(layout), FileHeads(layout)


def race(objects: ObjectStore, heads: HeadStore, number: int, rounds: int) -> None:
    """Hold the same head as everyone, then put and swap when everyone does."""
    mine = f"by {number}".encode() * 5_000
    for turn in range(rounds):
        old = heads.read("head")
        print("ready", flush=True)
        sys.stdin.readline()
        objects.put(f"same/{turn}", b"same" * 5_000)
        has_put = succeeds(lambda: objects.put(f"other/{turn}", mine))  # noqa: B023
        value = (old.value or b"") + f"{number} ".encode()
        has_swapped = succeeds(lambda: heads.swap(old, value))  # noqa: B023
        print(json.dumps([has_put, has_swapped]), flush=True)


def succeeds(action: Callable[[], object]) -> bool:
    try:
        action()
    except (ObjectConflict, HeadMoved):
        return False
    return True


def content(number: int) -> bytes:
    chance = random.Random(number)
    return chance.randbytes(chance.choice([10, 5_000, 400_000]))


def write(objects: ObjectStore, first: int) -> None:
    """Put numbered objects until we are killed, and say each that is stored."""
    while True:
        objects.put(f"k/{first:06}", content(first))
        print(first, flush=True)
        first += 1


def main(what: str, number: int, count: int, place: str, endpoint: str = "") -> None:
    objects, heads = opened(place, endpoint)
    if what == "race":
        race(objects, heads, number, count)
    else:
        print("ready", flush=True)
        sys.stdin.readline()
        write(objects, count)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), *sys.argv[4:])
