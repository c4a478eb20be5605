"""Export once for each of some operations and each kind of fault; print what went wrong, if
anything. Arguments: the folder of a zone, the port of its hub, the first operation to be struck
of those that differ by the next number, and the kinds.

A process of its own, so that each run is a fork of it. Operations are those on files and the
requests to the hub. After each fault one undisturbed run must make everything good.
"""

from __future__ import annotations

import builtins
import errno
import io
import os
import signal
import sys
import traceback
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import httpx

sys.path.insert(0, str(Path(__file__).parents[2]))

from bridge.carrier.verify import VerifyContext, check_carrier
from bridge.errors import Level
from bridge.exporter.state import ExportState
from support.bridge.online_zone import CHANGES, OnlineZone
from veen.errors import VeenError

FILES = (
    "open", "write", "pwrite", "preadv", "fdatasync", "fsync", "rename", "ftruncate", "unlink",
    "mkdir", "rmdir", "close",
)  # fmt: skip
WRITES = ("write", "pwrite")
REFUSED, WRONG = 3, 70


class Faults:
    """Fault number ``at`` happens, before the operation or after it; ``enospc`` then lasts."""

    def __init__(self, kind: str, at: int) -> None:
        self.count = 0
        self._kind = kind
        self._at = at
        self._is_full = False

    def install(self) -> None:
        for name in FILES:
            setattr(os, name, self._wrap(name, getattr(os, name)))
        io.open = builtins.open = self._wrap("fopen", io.open)
        send = self._wrap("ask", httpx.Client.send)
        httpx.Client.send = send  # type: ignore[method-assign]

    def _wrap(self, name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def operation(*arguments: Any, **options: Any) -> Any:
            self.count += 1
            if self._is_full and name in WRITES:
                raise OSError(errno.ENOSPC, "No space left on device")
            if self.count != self._at:
                return real(*arguments, **options)
            if self._kind == "kill":
                os.kill(os.getpid(), signal.SIGKILL)
            self._is_full = self._kind == "enospc"
            if self._kind == "eio" and name != "ask":
                raise OSError(errno.EIO, "Input/output error")
            if self._is_full and name in WRITES:
                raise OSError(errno.ENOSPC, "No space left on device")
            result = real(*arguments, **options)
            if self._kind == "killed-after":
                os.kill(os.getpid(), signal.SIGKILL)
            return result

        return operation


def in_child(work: Callable[[], None]) -> int:
    """The status of a fork that does the work; 3 where it ended as it may."""
    pid = os.fork()
    if pid == 0:
        code = WRONG
        try:
            work()
            code = 0
        except (VeenError, OSError) as error:
            code = REFUSED
            print(f"    refused: {error}", file=sys.stderr)
        finally:
            if code == WRONG:
                traceback.print_exc()
            os._exit(code)
    return os.waitpid(pid, 0)[1]


def export_with(zone: OnlineZone, medium: Path, kind: str, at: int, count: Path) -> int:
    def work() -> None:
        faults = Faults(kind, at)
        faults.install()
        zone.export(medium)
        count.write_text(str(faults.count))

    return in_child(work)


def check_after(zone: OnlineZone, media: list[Path], scratch: Path) -> None:
    """Nothing lost, nothing doubled, everything that counts is whole on these media."""
    past = zone.past()
    assert past.unfinished() is None, "something is unfinished"
    end = zone.checkpoint().end(CHANGES)
    assert end is not None
    assert past.cursor(CHANGES).seq == end.last_seq, "the cursor is behind"
    doubled = Counter((success.bundle_id, success.medium) for success in past.successes)
    assert set(doubled.values()) == {1}, "an entry is doubled"
    ranges = [
        (success.from_seq, success.to_seq)
        for success in past.successes
        if success.stream == CHANGES
    ]
    covered = [seq for first, last in ranges for seq in range(first, last + 1)]
    assert sorted(covered) == list(range(1, end.last_seq + 1)), "lost or doubled events"
    recorded = {(success.medium, success.bundle_id) for success in past.successes}
    for medium in media:
        for bag in sorted((medium / "agb0").glob("*")):
            check_bag(zone, bag, medium, recorded, scratch)
    state = zone.settings().exporting
    assert state is not None
    left = sorted(path.name for path in state.state.iterdir())
    due = ["checkpoint.cbor", "history.sqlite", "lock"]
    assert left == due, f"left behind: {left}"
    assert ExportState(state.state).left() == []


def check_bag(
    zone: OnlineZone, bag: Path, medium: Path, recorded: set[tuple[str, bytes]], scratch: Path
) -> None:
    report = check_carrier([bag], Level.VALID, VerifyContext(trust=zone.trust(), scratch=scratch))
    is_signed = (bag / "carrier.sig").exists() and report.ok
    if report.bundle is not None and report.ok:
        named = report.bundle.header.bundle_id
        others = {bundle_id for _, bundle_id in recorded}
        assert named in others, f"{bag}: carried and in no audit entry"
    assert is_signed or not report.ok, f"{bag}: accepted without a signature"


def main(folder: Path, port: int, first: int, every: int, kinds: list[str]) -> None:
    zone = OnlineZone(folder, port)
    media, scratch, count = folder / "media", folder / "scratch", folder / "count"
    for path in (media, scratch):
        path.mkdir()

    def medium(name: str) -> Path:
        path = media / name
        path.mkdir()
        return path

    export_with(zone, medium("count"), "none", 0, count)
    zone.advance(medium("spare"), 2)
    export_with(zone, medium("count-again"), "none", 0, count)
    operations, runs = int(count.read_text()), 0
    for number, kind in enumerate(kinds):
        shift = number * every // len(kinds)
        for at in range(1 + (first + shift) % every, operations + 1, every):
            spare, disturbed = medium(f"{kind}-{at}-spare"), medium(f"{kind}-{at}")
            zone.advance(spare, 2)
            status = export_with(zone, disturbed, kind, at, count)
            if os.WIFEXITED(status) and os.WEXITSTATUS(status) not in (0, REFUSED):
                print(f"{kind} at {at}: ended with {os.WEXITSTATUS(status)}")
            if export_with(zone, disturbed, "none", 0, count):
                print(f"{kind} at {at}: the run after it failed")
            if in_child(partial(check_after, zone, [spare, disturbed], scratch)):
                print(f"{kind} at {at}: wrong afterwards")
            runs += 1
    if in_child(partial(check_after, zone, sorted(media.iterdir()), scratch)):
        print("wrong in the end")
    print(f"{runs} runs over {operations} operations")


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]), sys.argv[5:])
