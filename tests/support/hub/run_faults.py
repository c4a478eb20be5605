"""Play the history once for every operation and kind of fault; print what went wrong, if anything.

A process of its own, single-threaded, so that each run is a fork of it and starts at once. In the
long form, the start after each fault is killed as well: at its first operation, then at its second,
until one start has no operation left to be killed at.

A full disk and a short write are felt by writes alone: at any other operation the one is that of
the next write, the other a kill just after it. The short form strikes them at writes only, and
of all kinds strikes every third place, each kind beginning with another one.
"""

from __future__ import annotations

import os
import shutil
import sys
from itertools import count, pairwise
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from hub.fsck.fsck import verify
from hub.sequencer.committer import Committer
from hub.storage.datadir import DataDir
from hub.storage.reader import LogReader
from support.hub.fault_history import HOURLY, LIMITS, STREAMS, in_child, opened, play
from support.hub.faulty_os import FaultyOs
from support.long_form import LONG
from veen.errors import VeenError
from veen.hub_identity import HubIdentity
from veen.label import DEFAULT_PROFILE
from veen.limits import Limits
from veen.msg import Msg
from veen.receipt import Receipt
from veen.recorder_checkpoint import RecorderCheckpoint
from veen.system.durable import NoSpace

FIRST, EVERY = {"kill": 0, "eio": 4, "enospc": 2, "short": 1}, 8
ROUNDS = 6
START = 40
"""Operations of the start, when a full disk may make a hub refuse; later it must live on."""


def play_with_fault(root: Path, acknowledged: Path, kind: str, at: int) -> int:
    def work() -> None:
        faults = FaultyOs(kind, at)
        sink = os.open(acknowledged, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        faults.install()

        def acknowledge(msg: bytes, receipt: bytes) -> None:
            os.write(
                sink, len(msg).to_bytes(4, "big") + len(receipt).to_bytes(4, "big") + msg + receipt
            )

        try:
            with opened(root) as committer:
                try:
                    refused = play(committer, ROUNDS, acknowledge)
                except NoSpace:
                    refused = 1
                faults.heal()
                if refused and play(committer, 1, acknowledge):
                    os._exit(71)  # room came back, and the hub did not
        except (VeenError, OSError):
            os._exit(3)  # a failed sync, write or rename ends the hub, as it must
        (root / "operations").write_text(" ".join(faults.log))

    return in_child(work)


def start_through_kills(root: Path) -> int:
    """Start until a start ends; how many were killed before."""

    def start(at: int) -> None:
        FaultyOs("kill", at).install()
        with opened(root):
            pass

    for at in count(1):
        status = in_child(lambda: start(at))  # noqa: B023
        if not os.WIFSIGNALED(status):
            assert status == 0, "a start after a killed start failed"
            return at - 1
    raise AssertionError


def check_after(root: Path, acknowledged: Path) -> None:
    """The log is whole after one start; everything acknowledged is there, and the hub goes on."""
    with opened(root):
        pass
    check_log(root)
    with opened(root) as committer:
        check_promises(committer, acknowledged)
    check_log(root)


def check_log(root: Path) -> None:
    report = verify(
        DataDir(root),
        limits=LIMITS,
        profiles=(DEFAULT_PROFILE, HOURLY),
        streams=STREAMS,
        progress=lambda *_: None,
    )
    assert report.ok, report.faults
    assert not report.derived, report.derived


def check_promises(committer: Committer, acknowledged: Path) -> None:
    again: list[tuple[bytes, bytes]] = []
    play(committer, 2, lambda msg, receipt: again.append((msg, receipt)))
    assert len(again) == 11, "the hub did not go on"
    datadir, identity = committer.log.datadir, committer.log.keys.identity
    promised = [*read_acknowledged(acknowledged), *again]
    check_documents(datadir, identity, [msg for msg, receipt in promised if not receipt])
    reader = LogReader(datadir, Limits())
    places: dict[tuple[bytes, int], bytes] = {}
    for msg, receipt in promised:
        if not receipt:
            continue
        result = Receipt.decode(receipt)
        identity.verify_receipt(result)
        place = (result.label, result.stream_seq)
        assert places.setdefault(place, receipt) == receipt, f"two receipts for {place}"
        stored = reader.entry(*place)
        assert (stored.msg_bytes, stored.receipt_bytes) == (msg, receipt), f"lost {place}"
        assert Msg.decode(msg).leaf_hash() == result.leaf_hash
        reader.proof(*place).verify(
            leaf_hash=result.leaf_hash, stream_seq=result.stream_seq, root=result.mmr_root
        )


def check_documents(datadir: DataDir, identity: HubIdentity, promised: list[bytes]) -> None:
    """Every document is whole and follows the one before it; none that was given out is lost."""
    names = sorted(datadir.recorder_names())
    raw = [datadir.file(name).read_bytes() for name in names]
    checkpoints = [RecorderCheckpoint.decode(item) for item in raw]
    for checkpoint in checkpoints:
        checkpoint.verify(identity)
    for earlier, later in pairwise(checkpoints):
        later.verify_follows(earlier)
    assert set(promised) <= set(raw), "a recorder checkpoint is lost"


def read_acknowledged(path: Path) -> list[tuple[bytes, bytes]]:
    raw = path.read_bytes() if path.exists() else b""
    pairs, at = [], 0
    while at < len(raw):
        msg_size, receipt_size = (
            int.from_bytes(raw[at : at + 4]),
            int.from_bytes(raw[at + 4 : at + 8]),
        )
        middle = at + 8 + msg_size
        pairs.append((raw[at + 8 : middle], raw[middle : middle + receipt_size]))
        at = middle + receipt_size
    return pairs


def places(operations: list[str], kind: str) -> list[int]:
    """The numbers of the operations that a kind of fault strikes."""
    of_writes = kind in {"enospc", "short"} and not LONG
    result = [at for at, name in enumerate(operations, 1) if name == "pwrite" or not of_writes]
    return result if LONG else result[FIRST[kind] :: EVERY]


def main(directory: Path, kinds: list[str]) -> None:
    first = directory / "count"
    play_with_fault(first, directory / "count.ack", "none", 0)
    operations = (first / "operations").read_text().split()
    runs = kills = 0
    for kind in kinds:
        for at in places(operations, kind):
            root, acknowledged = directory / "run", directory / "run.ack"
            shutil.rmtree(root, ignore_errors=True)
            acknowledged.unlink(missing_ok=True)
            status = play_with_fault(root, acknowledged, kind, at)
            allowed = (0, 3) if kind == "eio" or at <= START else (0,)
            if os.WIFEXITED(status) and os.WEXITSTATUS(status) not in allowed:
                print(f"{kind} at {at}: ended with {os.WEXITSTATUS(status)}")
            kills += start_through_kills(root) if LONG else 0
            if in_child(lambda: check_after(root, acknowledged)):  # noqa: B023
                print(f"{kind} at {at}: wrong after restart")
            runs += 1
    struck, writes = len(operations), operations.count("pwrite")
    print(f"{runs} runs over {struck} operations, {writes} writes, {kills} starts killed")


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
