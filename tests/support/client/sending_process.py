"""A process that sends without pause until it is killed, started quickly: its parent has imported
everything and forks one for each line that it reads.

python sending_process.py DIRECTORY URL
"""

from __future__ import annotations

import os
import random
import sys
import traceback
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))

from support import breakpoints
from veen.client.client import Client
from veen.client.hub_api import HubApi
from veen.client.outbox import Outbox
from veen.client.receipts import ReceiptBook
from veen.client.session import Session

STREAMS = ("record/one", "record/two")
POINTS: dict[str, Callable[..., Any]] = {
    "add": Outbox.add,
    "journal": Outbox.journal,
    "submit": HubApi.submit_batch,
    "state": Session.keep,
    "book": ReceiptBook.append,
    "settle": Outbox.settle,
}


def main() -> None:
    """Each line is a seed, or a seed and a point to die at: before or after a call."""
    directory, url = Path(sys.argv[1]), sys.argv[2]
    for line in sys.stdin:
        seed, *point = line.split()
        child = os.fork()
        if child == 0:
            _live(directory, url, int(seed), point)
        print("child", child, flush=True)
        print("dead", os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)


def _live(directory: Path, url: str, seed: int, point: list[str]) -> None:
    status = 1
    try:
        with _dying(point), Client.open(directory, url, batch=4) as client:
            if seed >= 0:
                _send(client, seed)
            client.flush()
        status = 0
    except Exception:  # noqa: BLE001 - told by the process that ends
        traceback.print_exc()
    finally:
        os._exit(status)


def _dying(point: list[str]) -> AbstractContextManager[None]:
    """The breakpoint at which this process dies: its name, before or after, and in which turn."""
    if not point:
        return nullcontext()
    name, when, turn = point
    return breakpoints.AT[when](POINTS[name], breakpoints.kill, int(turn))


def _send(client: Client, seed: int) -> None:
    chance, number = random.Random(seed), 0
    while True:
        stream, count = chance.choice(STREAMS), chance.randint(1, 9)
        bodies = [b"%d/%d" % (seed, number + item) for item in range(count)]
        number += count
        more: dict[str, Any] = {"attachments": [b"attached"]} if chance.random() < 0.2 else {}
        if chance.random() < 0.3:
            for body in bodies:
                client.send(stream, body, **more)
                _describe(stream, [body])
        else:
            client.emit_many(stream, bodies, **more)
            _describe(stream, bodies)
        if chance.random() < 0.5:
            client.flush()


def _describe(stream: str, bodies: list[bytes]) -> None:
    """From here on these are promised to reach the log."""
    for body in bodies:
        os.write(1, f"emitted {stream} {body.decode()}\n".encode())


if __name__ == "__main__":
    main()
