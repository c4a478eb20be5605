"""A process that follows a log file until it is killed, started quickly: its parent has imported
everything and forks one for each line that it reads.

python tail_process.py CONFIG CAPABILITY FILE
"""

from __future__ import annotations

import os
import sys
import time
import traceback
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from recorder.connect import open_recorder_client, reader_key
from recorder.emit.emitter import Emitter
from recorder.emit.json_lines import LineForm
from recorder.emit.tail import FileTail, TailRules, TailRun
from recorder.settings import load
from support import breakpoints
from veen.captoken import CapToken
from veen.client.outbox import Outbox
from veen.system.environment import Runtime


def main() -> None:
    """Each line is "follow" or "once", and where it dies by itself, after how many calls."""
    for line in sys.stdin:
        words = line.split()
        child = os.fork()
        if child == 0:
            _live(words)
        print("child", child, flush=True)
        print("dead", os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)


def _live(words: list[str]) -> None:
    status = 1
    try:
        with _dying(words[1:]):
            _tail(words[0])
        status = 0
    except Exception:  # noqa: BLE001 - told by the process that ends
        traceback.print_exc()
    finally:
        os._exit(status)


def _dying(point: list[str]) -> AbstractContextManager[None]:
    """The breakpoint at which this process dies: a method of the outbox, when, and which turn."""
    if not point:
        return nullcontext()
    method, when, turn = point
    return breakpoints.AT[when](getattr(Outbox, method), breakpoints.kill, int(turn))


def _tail(manner: str) -> None:
    settings, path = load(Path(sys.argv[1])), Path(sys.argv[3])
    world = Runtime(clock=lambda: int(time.time()), random=os.urandom, sleep=time.sleep)
    with open_recorder_client(settings.hub, passphrase=None, runtime=world) as client:
        client.renew(CapToken.decode(Path(sys.argv[2]).read_bytes()))
        emitter = Emitter(
            client,
            settings.streams,
            clock=lambda: time.time_ns() // 1_000_000,
            recipient=reader_key(settings.hub, world.clock()),
        )
        rules = TailRules(
            form=LineForm(payload=None), subject_id="file", origin="file", settle_ms=50
        )
        run = TailRun(FileTail(path, f"tail/{path}", emitter, rules), emitter, lambda _: None)
        if manner == "once":
            run.catch_up(time.sleep, 0.01)
        else:
            _follow(run)


def _follow(run: TailRun) -> None:
    """As the command does, and says each time that it has come further."""
    while True:
        step = run.turn()
        if step.events:
            os.write(1, b"kept %d\n" % step.events)
        elif step.is_idle:
            time.sleep(0.005)


if __name__ == "__main__":
    main()
