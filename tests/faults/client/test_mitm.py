"""Whatever a man in the middle does, each event is in the log once and in order."""

from __future__ import annotations

import random
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import cbor2
import pytest

from support.client import client_producer, man_in_the_middle, middle_faults
from support.hub.spec_objects import label_of
from support.long_form import LONG
from veen.client.transport import HubRefused
from veen.digest import h
from veen.errors import Rejected, VeenError

CLIENTS = 20
SCHEDULES = 15  # of each client
LONGER = 30
FLUSHES = 60


class Man:
    """One client behind him, and its log as the hub itself shows it."""

    def __init__(self, middle: Any, client: Any, reader: Any) -> None:
        self.producer = client_producer
        self.middle = middle
        self.client = client
        self.reader = reader
        self.stream = f"record/{client.session.identity.client_id.hex()[:16]}"
        self.log = reader.log(label_of(reader.hub_id, self.stream))
        self.other = reader.writer(client_producer.another_key(self.stream), self.stream)
        self.emitted: list[bytes] = []
        self.given_up: set[bytes] = set()
        self.acknowledged: dict[bytes, bytes] = {}
        self.count = 0

    def emit(self, bodies: list[bytes]) -> None:
        self.client.emit_many(self.stream, bodies)
        self.emitted += bodies

    def send(self, bodies: list[bytes]) -> None:
        """One that was refused for good may be in the log, or not; any other is there once."""
        self.emitted += bodies
        sent = 0
        try:
            for _ in self.client.send_many(self.stream, bodies):
                sent += 1
        except VeenError as error:
            if any(note.startswith("withdrawn") for note in error.__notes__):
                self.given_up |= set(bodies[sent:])
                if not isinstance(error, Rejected | HubRefused):
                    raise

    def flush(self) -> None:
        for _ in range(FLUSHES):
            try:
                self.client.flush()
            except VeenError:
                continue
            return
        raise AssertionError(f"still waiting after {FLUSHES} flushes")

    def rest(self, plan: Any, body: bytes) -> None:
        """He lets go of everything, and then leaves the client alone for one event."""
        self.middle.plan = None
        plan.end(self.middle)
        self.emit([body])
        assert self.client.flush().acknowledged == 1

    def somebody_else_writes(self) -> None:
        self.reader.submit(self.other.msg(b"of somebody else"))
        self.other.prev_ack = 0

    def check(self) -> None:
        """The log, the receipts and the view, compared without the code that made them."""
        seen = self.log.mmr.size
        self.reader.read(self.log)
        own = self.client.session.identity.client_id
        for msg, receipt in self.log.entries[seen:]:
            if msg[3] == own:
                self.acknowledged[self.producer.body_of(msg, self.client)] = cbor2.dumps(receipt)
                self.count += 1
        assert len(self.acknowledged) == self.count, "an event is in the log twice"
        assert [item for item in self.acknowledged if item not in self.given_up] == [
            item for item in self.emitted if item not in self.given_up
        ]
        late = [self.acknowledged[item] for item in self.acknowledged if item in self.given_up]
        assert sorted(late) == sorted(late.receipt.encode() for late in self.client.late())
        assert self.client.pending() == 0
        self._check_state()

    def _check_state(self) -> None:
        root = self.client.session.root
        assert (root / "receipts.cborseq").read_bytes() == b"".join(self.acknowledged.values())
        view = self.client.session.view(self.log.label, self.stream, 0)
        assert view.unlinked is None
        assert (view.peaks.size, list(view.peaks.hashes)) == (self.log.mmr.size, self.log.mmr.peaks)
        assert view.head.encode() == cbor2.dumps(self.log.entries[-1][1])
        assert list((root / "evidence").iterdir()) == []


@pytest.fixture(scope="module")
def counts() -> Iterator[Counter[str]]:
    """What was done, over all schedules; in the end everything must have been."""
    counter: Counter[str] = Counter()
    yield counter
    if counter.pop("schedules", 0) >= CLIENTS * SCHEDULES:
        assert set(counter) == {fault.__name__ for fault in middle_faults.FAULTS}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """In memory where that can be had: nothing here is about what a disk keeps."""
    memory = Path("/dev/shm")
    if not memory.is_dir():
        yield tmp_path_factory.mktemp("mitm")
        return
    with tempfile.TemporaryDirectory(prefix="veen-mitm-", dir=memory) as directory:
        yield Path(directory)


@pytest.fixture(scope="module")
def hub(folder: Path, hubs_in: Callable[..., Any]) -> Iterator[Any]:
    with hubs_in(folder) as make:
        yield make().start()


@pytest.fixture
def man(hub: Any, folder: Path, request: Any) -> Iterator[Man]:
    middle = man_in_the_middle.Middle(hub.port)
    world = client_producer.a_world(sleep=lambda _: None)
    directory = folder / h(request.node.name.encode()).hex()
    with client_producer.a_client(directory, middle.url, runtime=world, batch=3) as client:
        client.meet()
        yield Man(middle, client, hub.client())
    middle.close()


@pytest.mark.timeout(900)
@pytest.mark.parametrize("number", range(CLIENTS))
def test_every_event_lands_once_and_in_order(
    number: int, man: Man, counts: Counter[str],
) -> None:  # fmt: skip
    memory = man_in_the_middle.Memory()
    schedules = SCHEDULES * (LONGER if LONG else 1)
    for seed in range(number * schedules, (number + 1) * schedules):
        chance = random.Random(-seed - 1)
        if chance.random() < 0.3:
            man.somebody_else_writes()
        plan = man.middle.plan = man_in_the_middle.Plan(seed, middle_faults.FAULTS, memory, counts)
        man.emit([b"%d/%d" % (seed, number) for number in range(chance.randint(1, 8))])
        man.flush()
        man.rest(plan, b"%d, undisturbed" % seed)
        man.check()
        counts["schedules"] += 1


@pytest.mark.timeout(900)
@pytest.mark.parametrize("number", range(CLIENTS, CLIENTS + 4))
def test_what_is_sent_lands_once_and_what_is_refused_at_most_once(
    number: int, man: Man, counts: Counter[str],
) -> None:  # fmt: skip
    memory = man_in_the_middle.Memory()
    schedules = SCHEDULES * (LONGER if LONG else 1)
    for seed in range(number * schedules, (number + 1) * schedules):
        plan = man.middle.plan = man_in_the_middle.Plan(seed, middle_faults.FAULTS, memory, counts)
        chance = random.Random(-seed - 1)
        for turn in range(chance.randint(1, 3)):
            man.send([b"%d/%d/%d" % (seed, turn, item) for item in range(chance.randint(1, 4))])
        man.flush()
        man.rest(plan, b"%d, undisturbed" % seed)
        man.check()
        counts["schedules"] += 1
    assert man.given_up, "nothing was ever refused"
