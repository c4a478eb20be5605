"""The ResultDigest: the result of a query, the ranges it searched, and the hashes that bind both.

Beyond the text it binds the descriptor, the ranges searched and the checkpoint they end at, so
that an omitted row can be proven by searching the same ranges again (Query API 5.2, 10.3).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from recorder import timestamp
from recorder.query.descriptor import (
    Descriptor,
    DescriptorShape,
    EvidencePolicy,
    JsonLimits,
    read_canonical,
    read_evidence,
)
from recorder.service.errors import BadDescriptor
from veen.digest import h, h_blocks, ht
from veen.errors import Malformed
from veen.recorder_checkpoint import RecorderCheckpoint
from veen.wire import canonical_json

VERSION: Final = 1
_LIMITS: Final = JsonLimits(max_bytes=1 << 20, max_depth=8)
_NO_ROWS: Final = bytes(32)


class RowsHash(NamedTuple):
    """The hash of all rows.

    ``chain`` binds the hash of each row, so that single rows can be proven.
    """

    rows_hash: str
    row_count: int
    chain: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Searched:
    """The positions from ``from_seq`` to ``to_seq`` of a stream, all searched; none when ``to_seq``
    is one less. ``mmr_root`` is the stream's root in the checkpoint, ``unread`` counts messages
    that are not events."""

    stream: str
    from_seq: int
    to_seq: int
    mmr_root: str
    unread: int

    def document(self) -> dict[str, Any]:
        return {
            "stream": self.stream,
            "from_seq": self.from_seq,
            "to_seq": self.to_seq,
            "mmr_root": self.mmr_root,
            "unread": self.unread,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class SpokenUpTo:
    """The recorder checkpoint that a result covers."""

    checkpoint_id: str
    log_root: str
    created_at: str

    @classmethod
    def of(cls, checkpoint: RecorderCheckpoint) -> SpokenUpTo:
        return cls(
            checkpoint_id=checkpoint.checkpoint_id.hex(),
            log_root=checkpoint.log_root.hex(),
            created_at=timestamp.render(checkpoint.created_at * 1000),
        )

    def document(self) -> dict[str, Any]:
        return {
            "checkpoint_id": self.checkpoint_id,
            "log_root": self.log_root,
            "created_at": self.created_at,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class ResultDigest:
    """``event_count`` counts the matching events: the rows, unless they were aggregated."""

    query_id: str
    result_id: str
    version: int = VERSION
    descriptor_hash: str
    row_count: int
    event_count: int
    evidence_policy: EvidencePolicy
    rows_hash: str
    rows_chain: str
    evidence_hash: str
    executed_at: str
    hub_id: str
    profile_id: str
    checkpoint: SpokenUpTo
    searched: tuple[Searched, ...]

    @classmethod
    def of(
        cls,
        descriptor: Descriptor,
        *,
        result_id: str,
        rows: RowsHash,
        event_count: int,
        evidence_hash: str,
        executed_at_ms: int,
        checkpoint: RecorderCheckpoint,
        searched: Iterable[Searched],
    ) -> ResultDigest:
        """The digest of a result that covers the log up to a verified checkpoint."""
        return cls(
            query_id=descriptor.query_id,
            result_id=result_id,
            descriptor_hash=descriptor.digest(),
            row_count=rows.row_count,
            event_count=event_count,
            evidence_policy=descriptor.evidence,
            rows_hash=rows.rows_hash,
            rows_chain=rows.chain,
            evidence_hash=evidence_hash,
            executed_at=timestamp.render(executed_at_ms),
            hub_id=checkpoint.hub_id.hex(),
            profile_id=checkpoint.profile_id.hex(),
            checkpoint=SpokenUpTo.of(checkpoint),
            searched=tuple(searched),
        )

    def document(self) -> dict[str, Any]:
        return {
            "query_id": self.query_id,
            "result_id": self.result_id,
            "version": self.version,
            "descriptor_hash": self.descriptor_hash,
            "row_count": self.row_count,
            "event_count": self.event_count,
            "evidence_policy": self.evidence_policy.document(),
            "rows_hash": self.rows_hash,
            "rows_chain": self.rows_chain,
            "evidence_hash": self.evidence_hash,
            "executed_at": self.executed_at,
            "hub_id": self.hub_id,
            "profile_id": self.profile_id,
            "checkpoint": self.checkpoint.document(),
            "searched": [searched.document() for searched in self.searched],
        }

    def encode(self) -> bytes:
        """Canonical JSON, as recorded."""
        return canonical_json.encode(self.document())

    @classmethod
    def decode(cls, raw: bytes) -> ResultDigest:
        return cls.read(read_canonical(raw, _LIMITS))

    @classmethod
    def read(cls, value: Any) -> ResultDigest:
        """Decode the document of a digest, or raise Malformed."""
        shape = DescriptorShape.of(value, "the digest", cls.__dataclass_fields__)
        if shape.number("version") != VERSION:
            raise Malformed(
                f"a result digest: expected version {VERSION}, got {shape.number('version')}"
            )
        return cls(
            query_id=shape.name("query_id"),
            result_id=shape.name("result_id"),
            descriptor_hash=shape.hash("descriptor_hash"),
            row_count=shape.number("row_count"),
            event_count=shape.number("event_count"),
            evidence_policy=_policy(shape.value("evidence_policy")),
            rows_hash=shape.hash("rows_hash"),
            rows_chain=shape.hash("rows_chain"),
            evidence_hash=shape.hash("evidence_hash"),
            executed_at=shape.time("executed_at"),
            hub_id=shape.hash("hub_id"),
            profile_id=shape.hash("profile_id"),
            checkpoint=_spoken(shape.value("checkpoint")),
            searched=tuple(_searched(range_) for range_ in shape.array("searched")),
        )


def rows_hash(rows: Iterable[Mapping[str, Any]]) -> RowsHash:
    """The hash of the array of all rows in order, holding one row in memory at a time."""
    chain = RowChain()
    hash_ = h_blocks(chain.blocks(canonical_json.encode(dict(row)) for row in rows))
    return RowsHash(hash_.hex(), chain.count, chain.value.hex())


class RowChain:
    """A hash chain over the rows, computed while they are written."""

    def __init__(self) -> None:
        self.count = 0
        self.value = _NO_ROWS

    def blocks(self, rows: Iterable[bytes]) -> Iterator[bytes]:
        yield b"["
        for encoded in rows:
            yield b"," + encoded if self.count else encoded
            self.add(row_hash(encoded))
        yield b"]"

    def add(self, hashed: bytes) -> None:
        self.value = ht("veen/query-rows", self.value, hashed)
        self.count += 1


def row_hash(encoded: bytes) -> bytes:
    """The hash of a row in canonical JSON."""
    return h(encoded)


def _policy(value: Any) -> EvidencePolicy:
    try:
        evidence = read_evidence(value)
    except BadDescriptor as error:
        raise Malformed(f"the digest: {error}") from error
    if evidence.document() != value:
        raise Malformed("the digest: evidence_policy is not normalised")
    return evidence


def _spoken(value: Any) -> SpokenUpTo:
    shape = DescriptorShape.of(value, "digest.checkpoint", SpokenUpTo.__dataclass_fields__)
    return SpokenUpTo(
        checkpoint_id=shape.hash("checkpoint_id"),
        log_root=shape.hash("log_root"),
        created_at=shape.time("created_at"),
    )


def _searched(value: Any) -> Searched:
    shape = DescriptorShape.of(value, "digest.searched", Searched.__dataclass_fields__)
    searched = Searched(
        stream=shape.name("stream"),
        from_seq=shape.number("from_seq"),
        to_seq=shape.number("to_seq"),
        mmr_root=shape.hash("mmr_root"),
        unread=shape.number("unread"),
    )
    if (
        not 1 <= searched.from_seq <= searched.to_seq + 1
        or searched.unread > searched.to_seq - searched.from_seq + 1
    ):
        raise Malformed(
            f"digest.searched: expected a range, got {searched.from_seq} to {searched.to_seq}"
        )
    return searched
