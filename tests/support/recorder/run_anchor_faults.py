"""Anchor checkpoints once for every file operation and kind of fault; print what went wrong.

A process of its own, single-threaded, so that each run is a fork of it and starts at once.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from recorder.anchor.anchors import AnchorScheduler, Refs, verify_anchors
from recorder.anchor.ledger import AnchorLedger, check
from recorder.checkpoints.catalogue import RecorderCheckpointName
from recorder.checkpoints.store import AnchorCadence, CheckpointDirectory, CheckpointStore
from support.hub.faulty_os import FaultyOs
from support.recorder.anchor_documents import HUB, START, a_checkpoint
from veen.errors import VeenError
from veen.objects.port import FileSettings
from veen.objects.store import open_store

CHECKPOINTS = [a_checkpoint(START + n, (3 + n, n)) for n in range(2)]
LATER = START + 1_000_000
CADENCE = AnchorCadence(every_checkpoints=1, every_minutes=0)


def opened(root: Path) -> tuple[CheckpointStore, Refs, AnchorScheduler]:
    home, objects = (
        CheckpointDirectory(root / "home"),
        open_store(FileSettings(root / "objects")).objects,
    )
    checkpoint_store, refs = (
        CheckpointStore(home, HUB.hub_id, objects),
        Refs(home, HUB.hub_id, objects),
    )
    ledger = AnchorLedger(root / "anchors.ledger", lambda size: b"7" * size)
    return checkpoint_store, refs, AnchorScheduler(checkpoint_store, refs, ledger, CADENCE)


def play(root: Path, acknowledge: Callable[[bytes, bytes], None]) -> None:
    checkpoint_store, _, book = opened(root)
    for item in CHECKPOINTS:
        checkpoint_store.put(item)
        acknowledge(b"kept", item.checkpoint_id)
        task = book.ask(RecorderCheckpointName.of(item), START)
        acknowledge(b"asked", item.checkpoint_id)
        outcome = book.do(task, START)
        if outcome.ref is not None:
            acknowledge(b"anchored", item.checkpoint_id)


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
        sink = os.open(root / "journal", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        faults = FaultyOs(kind, at)
        faults.install()

        def note(what: bytes, whom: bytes) -> None:
            os.write(sink, what + b" " + whom.hex().encode() + b"\n")

        try:
            play(root, note)
        finally:
            faults.heal()
        os.write(sink, b"operations %d\n" % faults.count)

    status = in_child(work)
    assert os.WIFSIGNALED(status) or os.waitstatus_to_exitcode(status) in (0, 3), status
    return status


def wrong(root: Path) -> str | None:
    """What was promised and does not hold, after everything is opened again."""
    journal = [line.split() for line in (root / "journal").read_text().splitlines()]
    promised = {
        what: {item for w, item in journal if w == what} for what in ("kept", "asked", "anchored")
    }
    checkpoint_store, refs, book = opened(root)
    checkpoint_store.settle()
    stored = {name.checkpoint_id.hex() for name in checkpoint_store.names()}
    if not promised["kept"] <= stored:
        return "a checkpoint is lost"
    before = refs.anchored()
    if not promised["anchored"] <= {item.hex() for item in before}:
        return "an anchor is lost"
    if any(outcome.error for outcome in book.work(LATER)) or book.tasks():
        return "a task does not come to its end"
    if not promised["asked"] <= {item.hex() for item in refs.anchored()}:
        return "what was asked for is forgotten"
    return _unproven(root, checkpoint_store, refs)


def _unproven(root: Path, checkpoint_store: CheckpointStore, refs: Refs) -> str | None:
    ledger = AnchorLedger(root / "anchors.ledger", os.urandom)
    for name in checkpoint_store.names():
        for ref in refs.of(name.checkpoint_id):
            verify_anchors(ledger, checkpoint_store.get(name), ref.anchor_ref)
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
        ended = (
            (root / "journal").read_text().splitlines()[-1:] if (root / "journal").exists() else []
        )
        count = int(ended[0].split()[1]) if ended and ended[0].startswith("operations") else None
        if count is not None:
            (root / "journal").write_text(
                "\n".join((root / "journal").read_text().splitlines()[:-1])
            )
        if count is not None and at > count:
            break
        result = wrong(root)
        if result:
            print(f"{kind} at {at}: {result}")
        shutil.rmtree(root)
        runs += 1
    print(f"{runs} runs")


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
