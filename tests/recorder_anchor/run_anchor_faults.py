"""Anchor checkpoints once for every file operation and kind of fault; print what went wrong.

A process of its own, single-threaded, so that each run is a fork of it and starts at once.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[1] / "hub" / "faults"))

from anchor_documents import HUB, START, a_checkpoint
from faulty_os import FaultyOs

from recorder.anchor import book as books
from recorder.anchor.book import Book
from recorder.anchor.ledger import Ledger
from recorder.anchor.ledger_chain import check
from recorder.anchor.refs import Refs
from recorder.checkpoints.cadence import AnchorCadence
from recorder.checkpoints.home import CheckpointName, Home
from recorder.checkpoints.shelf import Shelf
from veen.errors import VeenError
from veen.objects.settings import FileSettings
from veen.objects.store import open_store

CHECKPOINTS = [a_checkpoint(START + n, (3 + n, n)) for n in range(2)]
LATER = START + 1_000_000
CADENCE = AnchorCadence(every_checkpoints=1, every_minutes=0)


def opened(root: Path) -> tuple[Shelf, Refs, Book]:
    home, objects = Home(root / "home"), open_store(FileSettings(root / "objects")).objects
    shelf, refs = Shelf(home, HUB.hub_id, objects), Refs(home, HUB.hub_id, objects)
    ledger = Ledger(root / "anchors.ledger", lambda size: b"7" * size)
    return shelf, refs, Book(shelf, refs, ledger, CADENCE)


def play(root: Path, acknowledge: Callable[[bytes, bytes], None]) -> None:
    shelf, _, book = opened(root)
    for one in CHECKPOINTS:
        shelf.put(one)
        acknowledge(b"kept", one.checkpoint_id)
        task = book.ask(CheckpointName.of(one), START)
        acknowledge(b"asked", one.checkpoint_id)
        found = book.do(task, START)
        if found.ref is not None:
            acknowledge(b"anchored", one.checkpoint_id)


def in_child(work: Callable[[], None]) -> int:
    child = os.fork()
    if child == 0:
        try:
            work()
            os._exit(0)
        except (VeenError, OSError):
            os._exit(3)  # a failed write ends it, as it must
        except BaseException:  # noqa: BLE001
            sys.excepthook(*sys.exc_info())
            os._exit(70)
    return os.waitpid(child, 0)[1]


def run(root: Path, kind: str, at: int) -> int:
    """How many operations there were, or 0 when the run did not come to its end."""

    def work() -> None:
        sink = os.open(root / "said", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        faults = FaultyOs(kind, at)
        faults.install()
        try:
            play(
                root,
                lambda what, whom: (
                    os.write(sink, what + b" " + whom.hex().encode() + b"\n") and None
                ),
            )
        finally:
            faults.heal()
        os.write(sink, b"operations %d\n" % faults.count)

    status = in_child(work)
    assert os.WIFSIGNALED(status) or os.waitstatus_to_exitcode(status) in (0, 3), status
    return status


def wrong(root: Path) -> str | None:
    """What was promised and does not hold, after everything is opened again."""
    said = [line.split() for line in (root / "said").read_text().splitlines()]
    promised = {
        what: {one for w, one in said if w == what} for what in ("kept", "asked", "anchored")
    }
    shelf, refs, book = opened(root)
    shelf.settle()
    kept = {name.checkpoint_id.hex() for name in shelf.names()}
    if not promised["kept"] <= kept:
        return "a checkpoint is lost"
    before = refs.anchored()
    if not promised["anchored"] <= {one.hex() for one in before}:
        return "an anchor is lost"
    if any(one.error for one in book.work(LATER)) or book.tasks():
        return "a task does not come to its end"
    if not promised["asked"] <= {one.hex() for one in refs.anchored()}:
        return "what was asked for is forgotten"
    return _unproven(root, shelf, refs)


def _unproven(root: Path, shelf: Shelf, refs: Refs) -> str | None:
    ledger = Ledger(root / "anchors.ledger", os.urandom)
    for name in shelf.names():
        for ref in refs.of(name.checkpoint_id):
            books.verify(ledger, shelf.get(name), ref.anchor_ref)
            key = f"recorder/{HUB.hub_id.hex()}/anchors/{name.checkpoint_id.hex()}/{ref.name}"
            if open_store(FileSettings(root / "objects")).objects.get(key) != ref.anchor_ref:
                return "object storage holds another anchor"
    if refs.anchored():
        check(root / "anchors.ledger")
    return None


def main(folder: Path, kind: str) -> None:
    at = runs = 0
    while True:
        at += 1
        root = folder / "run"
        root.mkdir()
        run(root, kind, at)
        ended = (root / "said").read_text().splitlines()[-1:] if (root / "said").exists() else []
        count = int(ended[0].split()[1]) if ended and ended[0].startswith("operations") else None
        if count is not None:
            (root / "said").write_text("\n".join((root / "said").read_text().splitlines()[:-1]))
        if count is not None and at > count:
            break
        found = wrong(root)
        if found:
            print(f"{kind} at {at}: {found}")
        shutil.rmtree(root)
        runs += 1
    print(f"{runs} runs")


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
