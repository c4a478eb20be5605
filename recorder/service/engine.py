"""A query run to its rows on disk and their digest; recording it is another's task."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final

from recorder.index.engine import EngineLimits, answer
from recorder.index.home import IndexHome
from recorder.index.snapshot import snapshot
from recorder.query.descriptor import Descriptor, read_descriptor
from recorder.query.digest import ResultDigest, rows_hash
from recorder.query.evidence import Witness, evidence_hash, verified
from recorder.query.json_text import JsonLimits, parse_json
from recorder.service.query_state import Query
from recorder.service.rows_file import RowsWriter
from veen import cbor
from veen.crew import HERE, Crew
from veen.errors import VeenError
from veen.hub_identity import HubIdentity
from veen.recorder_checkpoint import RecorderCheckpoint

INLINE: Final = "inline"
CHECKPOINT_FILE: Final = "checkpoint.cbor"
WITNESS_FILE: Final = "witnesses.cborseq"
_LIMITS: Final = JsonLimits(max_bytes=4 << 20)
"""A normalised descriptor is a little longer than what was submitted."""


class NoCheckpoint(VeenError):
    """There is no recorder checkpoint up to which a query could speak."""

    def __init__(self) -> None:
        super().__init__(
            "no recorder checkpoint speaks of these streams yet, or the index has not reached "
            "it; make one with veen recorder checkpoint create, and submit again"
        )


class InlineEngine:
    """Answers from the index; ``hub`` is the identity as it is known by now."""

    def __init__(
        self,
        index: IndexHome,
        results: Path,
        limits: EngineLimits,
        *,
        hub: Callable[[], HubIdentity],
        clock_ms: Callable[[], int],
        beside: Crew = HERE,
    ) -> None:
        self._index = index
        self._beside = beside
        self._results = results
        self._limits = limits
        self._hub = hub
        self._clock_ms = clock_ms

    def checkpoint(self, descriptor: Descriptor) -> RecorderCheckpoint:
        """The latest one that the index has reached in every stream of the scope, verified."""
        with snapshot(self._index) as held:
            held.refuse_alarms()
            found = held.latest(descriptor.scope)
        if found is None:
            raise NoCheckpoint
        found.verify(self._hub())
        return found

    def run(
        self, descriptor: Descriptor, result_id: str, checkpoint: RecorderCheckpoint
    ) -> ResultDigest:
        """The digest of a result whose rows are on disk on return; or an error and no result."""
        hub = self._hub()
        found = answer(self._index, descriptor, checkpoint, hub, self._limits, self._beside)
        lines = (verified(one.entry, checkpoint) for one in found.outcome.sampled)
        hashed_evidence = evidence_hash(descriptor, result_id, lines)
        writer = RowsWriter(self._results / result_id)
        try:
            hashed = rows_hash(writer.through(found.outcome.rows))
            keep_evidence(writer, checkpoint, found.witnesses)
            writer.finish()
        except BaseException:
            writer.abandon()
            raise
        return ResultDigest.of(
            descriptor,
            result_id=result_id,
            rows=hashed,
            event_count=found.outcome.event_count,
            evidence_hash=hashed_evidence,
            executed_at_ms=self._clock_ms(),
            checkpoint=checkpoint,
            searched=found.searched,
        )


def keep_evidence(
    writer: RowsWriter, checkpoint: RecorderCheckpoint, witnesses: Iterable[Witness]
) -> None:
    """What a proof package is made of later; the index may have moved on by then."""
    writer.add_file(CHECKPOINT_FILE, checkpoint.encode())
    writer.add_file(WITNESS_FILE, b"".join(one.encode() for one in witnesses))


def descriptor_of(query: Query) -> Descriptor:
    """The descriptor of a query as it was recorded."""
    return read_descriptor(parse_json(query.descriptor, _LIMITS))


def read_witnesses(raw: bytes) -> list[Witness]:
    return [Witness.decode(one) for one in cbor.decode_sequence(raw)]
