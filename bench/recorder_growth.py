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
from recorder.index import tables
from recorder.index.engine import QueryPlan, SearchRange, _choose, walk
from recorder.index.proofs import check_checkpoint
from recorder.index.reader import snapshot
from recorder.index.rebuild import create
from recorder.index.tables import IndexHome
from recorder.index.writer import writing
from recorder.query.filter import Filter
from recorder.service.database import Database, RecordRef, Results
from support.recorder import anchor_documents
from veen.checkpoint import Checkpoint
from veen.client.session import ClientState, LabelView, load_state, save_state
from veen.digest import h
from veen.label import DEFAULT_PROFILE, EpochLabels, routing_key, stream_id
from veen.mmr import EMPTY
from veen.recorder_checkpoint import RecorderCheckpoint, StreamEnd, log_root

ROUNDS = 7
HUB_ID = bytes(32)
Prepared = Callable[[], object]
_HELD = ExitStack()
"""Writers that stay open until the end."""


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

    def search() -> None:
        queries.expire(0, 0)
        queries.unremoved(100)

    return search


_EVENT = "INSERT INTO events VALUES (?, 1, 1, zeroblob(32), 0, NULL, ?, ?, ?, 1, ?, x'a0')"


def index_of(root: Path, size: int) -> IndexHome:
    """An index with a stream in which a subject and a type are frequent, and seldom together."""
    home = IndexHome(root / "index")
    with home.locked():
        generation = create(home, HUB_ID)
    with tables.connected(generation, writable=True) as db, tables.transaction(db):
        db.execute(
            "INSERT INTO streams VALUES (1, ?, 'record/a', ?, x'', 0, 0, 0, 0, 0)", (HUB_ID, size)
        )
        db.executemany(_EVENT, map(_index_row, range(size)))
    return home


def _index_row(number: int) -> tuple[int, str, bytes, str, str]:
    is_both, is_even = number % 5_000 == 0 and number < 50_000, number % 2 == 0
    principal = h(b"rare" if is_both else b"%d" % (number % 7))
    subject, kind = (
        "user:1" if is_both or is_even else "user:2",
        "login" if is_both or not is_even else "x",
    )
    return tables.place(1, number + 1), subject, principal, kind, f"web-{number % 3}"


def searched(root: Path, size: int, filter_: Filter) -> Prepared:
    home = index_of(root, size)

    def search() -> None:
        with snapshot(home) as held:
            (row,) = held.streams()
            ranges = [SearchRange(row, 1, size)]
            key = _choose(held.db, ranges, filter_, 10**9)
            list(walk(held, QueryPlan(ranges, key, ()), filter_))

    return search


def index_pair(root: Path, size: int) -> Prepared:
    """Read the ten events of a subject and a type that both are frequent."""
    return searched(root, size, Filter(subject_id="user:1", event_type=("login",)))


def index_principal(root: Path, size: int) -> Prepared:
    """Read the ten events of a principal."""
    return searched(root, size, Filter(principal_id=h(b"rare")))


def checkpoint_compare(root: Path, size: int) -> Prepared:
    """Compare a recorder checkpoint of so many streams with the index."""
    home, names = IndexHome(root / "index"), [f"record/{number}" for number in range(size)]
    document = _document(names)
    _HELD.enter_context(home.locked())
    writer = _HELD.enter_context(writing(create(home, document.hub_id)))
    writer.db.execute(
        "INSERT INTO checkpoints (checkpoint_id, created_at, document) VALUES (?, ?, ?)",
        (document.checkpoint_id, document.created_at, document.encode()),
    )
    for name in names:
        row = writer.stream(name)._replace(position=1)
        writer.nodes(row).write_from(1, h(name.encode()))
        writer.update(row)

    def compare() -> None:
        check_checkpoint(writer)
        for row in writer.streams():
            if row.checked != 1:
                raise AssertionError(row)
            writer.update(row._replace(checked=0))

    return compare


def _document(names: list[str]) -> RecorderCheckpoint:
    """A checkpoint of streams with one entry each."""
    ends = sorted(
        (
            StreamEnd(stream_id=stream_id(name), last_seq=1, mmr_root=h(name.encode()))
            for name in names
        ),
        key=lambda end: end.stream_id,
    )
    return RecorderCheckpoint(
        hub_id=anchor_documents.HUB.hub_id, hub_public=anchor_documents.KEY.public,
        profile_id=anchor_documents.PROFILE, created_at=1, log_root=log_root(ends),
        ends=tuple(ends), names=tuple(sorted(names, key=stream_id)),
        checkpoints=tuple(map(_signed_end, ends)),
    ).signed(anchor_documents.KEY)  # fmt: skip


def _signed_end(end: StreamEnd) -> Checkpoint:
    label = EpochLabels(
        routing_key(anchor_documents.HUB.hub_id), end.stream_id, DEFAULT_PROFILE
    ).at(0)
    return Checkpoint(
        label_prev=label, label_curr=label, upto_seq=1, mmr_root=end.mmr_root, epoch=0
    ).signed(anchor_documents.KEY)


def client_state(root: Path, size: int) -> tuple[Path, ClientState]:
    """A client directory with the views of so many epochs of a stream."""
    views = {h(b"%d" % epoch): _view(epoch) for epoch in range(size)}
    return root / "state.json", save_state(root / "state.json", ClientState(views=views))


def _view(epoch: int) -> LabelView:
    return LabelView(
        hub_id=HUB_ID, stream="record/a", epoch=epoch, peaks=EMPTY.append(h(b"%d" % epoch))
    )


def client_save(root: Path, size: int) -> Prepared:
    """Save the state of a client after a message."""
    path, state = client_state(root, size)
    return lambda: save_state(path, state.with_view(h(b"%d" % (size - 1)), _view(size - 1)))


def client_new_epoch(root: Path, size: int) -> Prepared:
    """Save the state of a client after the first message of an epoch."""
    path, state = client_state(root, size)
    return lambda: save_state(path, state.with_view(h(b"new"), _view(size)))


def client_start(root: Path, size: int) -> Prepared:
    """Load the state of a client, and the views of the newest and of the first epoch."""
    path, _ = client_state(root, size)
    return lambda: [load_state(path).views[h(b"%d" % epoch)] for epoch in (size - 1, 0)]


BENCHES: dict[str, tuple[Callable[[Path, int], Prepared], tuple[int, ...]]] = {
    "checkpoint_latest": (checkpoint_latest, (1_000, 10_000, 100_000)),
    "checkpoint_page": (checkpoint_page, (1_000, 10_000, 100_000)),
    "query_idle": (query_idle, (1_000, 10_000, 100_000)),
    "query_submit": (query_submit, (1_000, 10_000, 100_000)),
    "query_counts": (query_counts, (1_000, 10_000, 100_000)),
    "query_expiry": (query_expiry, (1_000, 10_000, 100_000)),
    "index_pair": (index_pair, (50_000, 200_000, 1_000_000)),
    "index_principal": (index_principal, (50_000, 200_000, 1_000_000)),
    "client_save": (client_save, (720, 8_760, 87_600)),
    "client_new_epoch": (client_new_epoch, (720, 8_760, 87_600)),
    "client_start": (client_start, (720, 8_760, 87_600)),
    "checkpoint_compare": (checkpoint_compare, (200, 1_000, 3_000)),
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
    with _HELD:
        for growth in measure(sys.argv[1:]):
            print(growth.to_json(), flush=True)


if __name__ == "__main__":
    main()
