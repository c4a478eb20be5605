"""Witnesses of sampled events: made of what the index keeps, and verified before they are given."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Final, NamedTuple

from recorder.index import tables
from recorder.index.prover import Prover
from recorder.index.snapshot import Snapshot
from recorder.index.tables import BadIndex, StreamRow
from recorder.query.entry import Entry
from recorder.query.evidence import Witness, WitnessCheck
from recorder.query.run import Sampled
from veen.crew import Crew
from veen.errors import Untrusted
from veen.hub_identity import HubIdentity
from veen.recorder_checkpoint import RecorderCheckpoint

_TOGETHER: Final = 256

Shown = tuple[Witness, Entry]


class Terms(NamedTuple):
    """What a witness is verified against; both have been verified themselves."""

    hub: HubIdentity
    checkpoint: RecorderCheckpoint


def verified_witnesses(
    held: Snapshot,
    rows: Mapping[str, StreamRow],
    sampled: Sequence[Sampled],
    terms: Terms,
    beside: Crew,
) -> tuple[Witness, ...]:
    """A witness for each sampled event, in order; the first that does not hold is raised."""
    provers = {name: _prover(held, row, terms.checkpoint) for name, row in rows.items()}
    found: list[Witness] = []

    def parts() -> Iterator[list[Shown]]:
        for start in range(0, len(sampled), _TOGETHER):
            entries = [one.entry for one in sampled[start : start + _TOGETHER]]
            some = list(_witnesses(held, rows, entries, provers))
            found.extend(some)
            yield list(zip(some, entries, strict=True))

    deque(beside.run(partial(_verify, terms), parts()), maxlen=0)
    return tuple(found)


def _witnesses(
    held: Snapshot,
    rows: Mapping[str, StreamRow],
    entries: Sequence[Entry],
    provers: Mapping[str, Prover],
) -> Iterator[Witness]:
    places = [rows[one.stream].place(one.seq) for one in entries]
    for entry, pair in zip(entries, held.pairs(places), strict=True):
        if pair.body_key is None:
            raise BadIndex(
                f"{entry.stream} {entry.seq}: the index lacks the key of its body; {tables.REMEDY}"
            )
        try:
            proof = provers[entry.stream].prove(entry.seq)
        except LookupError as error:
            raise BadIndex(f"{entry.stream} {entry.seq}: {error}; {tables.REMEDY}") from error
        yield Witness(msg=pair.msg, receipt=pair.receipt, body_key=pair.body_key, inclusion=proof)


def _prover(held: Snapshot, row: StreamRow, checkpoint: RecorderCheckpoint) -> Prover:
    end = checkpoint.end(row.name)
    return Prover(held.nodes(row), end.last_seq if end else 0)


def _verify(terms: Terms, shown: Sequence[Shown]) -> None:
    check = WitnessCheck(terms.hub, terms.checkpoint)
    for witness, entry in shown:
        try:
            check.event(witness, entry)
        except Untrusted as error:
            raise Untrusted(f"{error}; run veen recorder index verify") from error
