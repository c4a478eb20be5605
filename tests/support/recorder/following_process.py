"""Forks followers; each ends itself with SIGKILL when its index runs the n-th statement.

python following_process.py CLIENT INDEX URL

reads ``N OPENERS`` from standard input, and says how each follower ended.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

from recorder.index.follower import Follower, opening
from recorder.index.rebuild import create
from recorder.index.tables import IndexHome
from recorder.index.writer import writing
from veen.client.client import Client

BATCH = 40


def follow(last: int, openers: int) -> None:
    client_dir, index, url = sys.argv[1:]
    home = IndexHome(Path(index))
    with Client.open(Path(client_dir), url) as client:
        session = client.meet()
        with (
            home.locked(),
            opening(session.identity.readers(), session.limits, openers) as opener,
            writing(create(home, session.hub.hub_id)) as writer,
        ):
            left = last

            def count(_statement: str) -> None:
                nonlocal left
                left -= 1
                if left == 0:
                    os.kill(os.getpid(), signal.SIGKILL)

            writer.db.set_trace_callback(count)
            follower = Follower(client, writer, opener, page_items=BATCH)
            while follower.round():
                pass


def main() -> None:
    for line in sys.stdin:
        last, openers = map(int, line.split())
        child = os.fork()
        if not child:
            follow(last, openers)
            os._exit(0)
        _, status = os.waitpid(child, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)


if __name__ == "__main__":
    main()
