"""Witnesses of sampled events: made of what the index keeps, and verified before they are given."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from recorder.index import tables
from recorder.index.prover import Prover
from recorder.index.snapshot import Snapshot
from recorder.index.tables import BadIndex, StreamRow
from recorder.query.entry import Entry
from recorder.query.evidence import Witness, verify_witness
from recorder.query.run import Sampled
from veen.errors import Untrusted
from veen.hub_identity import HubIdentity
from veen.recorder_checkpoint import RecorderCheckpoint

_TOGETHER: Final = 512
_THREADS: Final = 2


def verified_witnesses(
    held: Snapshot,
    rows: Mapping[str, StreamRow],
    sampled: Sequence[Sampled],
    hub: HubIdentity,
    checkpoint: RecorderCheckpoint,
) -> tuple[Witness, ...]:
    """A witness for each sampled event, in order; the first that does not hold is raised.

    The signatures are checked in two threads: libsodium lets go of the interpreter meanwhile.
    """
    provers = {name: _prover(held, row, checkpoint) for name, row in rows.items()}
    found: list[Witness] = []
    with ThreadPoolExecutor(_THREADS, thread_name_prefix="veen-witness") as beside:
        for start in range(0, len(sampled), _TOGETHER):
            entries = [one.entry for one in sampled[start : start + _TOGETHER]]
            some = list(_witnesses(held, rows, entries, provers))
            shown = list(zip(some, entries, strict=True))
            waiting = [
                beside.submit(_verify, shown[part::_THREADS], hub, checkpoint)
                for part in range(_THREADS)
            ]
            for one in waiting:
                one.result()
            found += some
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


def _verify(
    shown: Sequence[tuple[Witness, Entry]],
    hub: HubIdentity,
    checkpoint: RecorderCheckpoint,
) -> None:
    for witness, entry in shown:
        try:
            verify_witness(witness, entry, hub, checkpoint)
        except Untrusted as error:
            raise Untrusted(f"{error}; run veen recorder index verify") from error
