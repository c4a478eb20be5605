"""What a long history costs the recorder and the client: processor time at each size.

Each line has the cost at every size and the ratio of the largest to the smallest. Histories are
written through the writers of the product, or straight into its files where that would take hours.

python bench/recorder_growth.py                     all of them
python bench/recorder_growth.py checkpoint_latest   only these
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from recorder.checkpoints.catalogue import RecorderCheckpointName
from recorder.checkpoints.store import CheckpointDirectory, CheckpointStore
from recorder.service.database import Database, RecordRef, Results
from support.recorder import anchor_documents

ROUNDS = 7
HUB_ID = bytes(32)
Prepared = Callable[[], object]


@dataclass(frozen=True, slots=True)
class Growth:
    """The cost of one operation, in milliseconds of processor time, by the size of the history."""

    bench: str
    of: str
    milliseconds: dict[int, float]

    def to_json(self) -> str:
        sizes = sorted(self.milliseconds)
        first, last = (self.milliseconds[size] for size in (sizes[0], sizes[-1]))
        return json.dumps(
            {
                "bench": self.bench,
                "of": self.of,
                "cpu_ms": {str(size): round(self.milliseconds[size], 3) for size in sizes},
                "ratio": round(last / first, 2) if first else None,
            }
        )


@contextmanager
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as path:
        yield Path(path)


def cpu_ms(work: Prepared) -> float:
    """The least processor time of some rounds."""
    costs = []
    for _ in range(ROUNDS):
        begun = time.process_time()
        work()
        costs.append(time.process_time() - begun)
    return 1000 * min(costs)


def checkpoint_store(root: Path, size: int) -> CheckpointStore:
    """A store whose documents are as long as those of a few streams; only the last is real."""
    home = CheckpointDirectory(root)
    home.make()
    for number in range(size - 1):
        name = RecorderCheckpointName(1_000 + number, os.urandom(32))
        (home.checkpoints / name.file).touch()
    store = CheckpointStore(home, HUB_ID, None)
    store.put(anchor_documents.a_checkpoint())
    return store


def checkpoint_latest(root: Path, size: int) -> Prepared:
    """Read the latest recorder checkpoint."""
    return checkpoint_store(root, size).latest


def checkpoint_page(root: Path, size: int) -> Prepared:
    """List the newest hundred recorder checkpoints, and count all."""
    store = checkpoint_store(root, size)
    return lambda: (store.newest(100), store.count())


def results(root: Path, size: int) -> Results:
    """The database of a query service with so many completed queries."""
    database = Database(root / "service.sqlite")
    rows = (
        (f"q-{number:032x}", f"r-{number:032x}", number, _event(number))
        for number in range(1, size + 1)
    )
    with database.changing() as db:
        db.executemany(
            "INSERT INTO queries (query_id, result_id, principal, descriptor, submitted, "
            "request_event) VALUES (?, ?, 'alice', zeroblob(300), ?, ?)",
            rows,
        )
        db.execute("UPDATE queries SET state = 'running', owner = 'x', digest = zeroblob(600)")
        db.execute(
            "UPDATE queries SET state = 'completed', result_event = request_event, "
            "finished = submitted"
        )
    return Results(database)


def _event(seq: int) -> str:
    return RecordRef("record/query/requests", seq, "00" * 32, f"rcpt-{seq:064x}").encode()


def query_idle(root: Path, size: int) -> Prepared:
    """Look for queries to record, to run and to complete, as each turn of the service does."""
    queries = results(root, size)
    return lambda: (queries.unrecorded(), queries.runnable("me"), queries.materialised_only())


def query_submit(root: Path, size: int) -> Prepared:
    """Find the positions after which the events of a new query can be."""
    queries = results(root, size)
    return lambda: (queries.last_seq("request_event"), queries.last_seq("result_event"))


def query_counts(root: Path, size: int) -> Prepared:
    """Count the queries by state, as the health route does."""
    return results(root, size).counts


def query_expiry(root: Path, size: int) -> Prepared:
    """Look for results that expire, when none does."""
    queries = results(root, size)
    return lambda: (queries.expire(0, 0), queries.unremoved(100))


BENCHES: dict[str, tuple[Callable[[Path, int], Prepared], tuple[int, ...]]] = {
    "checkpoint_latest": (checkpoint_latest, (1_000, 10_000, 100_000)),
    "checkpoint_page": (checkpoint_page, (1_000, 10_000, 100_000)),
    "query_idle": (query_idle, (1_000, 10_000, 100_000)),
    "query_submit": (query_submit, (1_000, 10_000, 100_000)),
    "query_counts": (query_counts, (1_000, 10_000, 100_000)),
    "query_expiry": (query_expiry, (1_000, 10_000, 100_000)),
}


def measure(names: Iterable[str] = ()) -> Iterator[Growth]:
    for name in names or BENCHES:
        build, sizes = BENCHES[name]
        with ExitStack() as stack:
            works = {size: build(stack.enter_context(folder()), size) for size in sizes}
            costs = {size: cpu_ms(work) for size, work in works.items()}
        yield Growth(name, (build.__doc__ or "").splitlines()[0].rstrip("."), costs)


def main() -> None:
    unknown = sorted(set(sys.argv[1:]) - set(BENCHES))
    if unknown:
        raise SystemExit(f"no benchmark named {', '.join(unknown)}; there are {', '.join(BENCHES)}")
    for growth in measure(sys.argv[1:]):
        print(growth.to_json(), flush=True)


if __name__ == "__main__":
    main()
