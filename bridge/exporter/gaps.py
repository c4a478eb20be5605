"""The gap file: ranges that the importing zone lacks, to be exported again (AGB0 4.7).

People carry it back by hand. Only the exporter reads it; nothing of it is written to a stream.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

from veen.errors import LATER_RELEASE, Malformed, WrongVersion
from veen.wire import canonical_json
from veen.wire.canonical_json import parse_json

_VERSION: Final = 1
_MOST: Final = 1 << 63
MAX_BYTES: Final = 1 << 20
"""Some ten thousand gaps; beyond that, export everything again."""


@dataclass(frozen=True, slots=True, order=True)
class ExportGap:
    """A missing range of a stream, both ends included."""

    stream: str
    from_seq: int
    to_seq: int


@dataclass(frozen=True, slots=True)
class GapFile:
    """The missing ranges of one hub's streams, in order."""

    source_hub_id: bytes
    gaps: tuple[ExportGap, ...]

    def encode(self) -> bytes:
        return canonical_json.encode(
            {
                "version": _VERSION,
                "source_hub_id": self.source_hub_id.hex(),
                "gaps": [
                    {"stream": gap.stream, "from": gap.from_seq, "to": gap.to_seq}
                    for gap in self.gaps
                ],
            }
        )

    @classmethod
    def of(cls, source_hub_id: bytes, gaps: Iterable[ExportGap]) -> GapFile:
        return cls(source_hub_id, tuple(sorted(gaps)))

    @classmethod
    def read(cls, path: Path) -> GapFile:
        """Read and decode a gap file; at most ``MAX_BYTES`` are read."""
        with path.open("rb") as file:
            raw = file.read(MAX_BYTES + 1)
        try:
            return cls.decode(raw)
        except Malformed as error:
            raise Malformed(
                f"{path}: {error}; use the file that veen bridge reconcile wrote"
            ) from error

    @classmethod
    def decode(cls, raw: bytes) -> GapFile:
        if len(raw) > MAX_BYTES:
            raise Malformed(f"expected a gap file of at most {MAX_BYTES} bytes, got more")
        document = parse_json(raw)
        _verify_version(document)
        try:
            gap_file = cls(
                bytes.fromhex(document["source_hub_id"]), tuple(map(_gap, document["gaps"]))
            )
        except (KeyError, TypeError, ValueError) as error:
            raise Malformed(f"expected a gap file: {error}") from error
        if gap_file.encode() != raw.removesuffix(b"\n") or len(gap_file.source_hub_id) != 32:
            raise Malformed("expected the canonical form of a gap file, got another")
        for gap, following in pairwise(gap_file.gaps):
            if (following.stream, following.from_seq) <= (gap.stream, gap.to_seq):
                detail = f"{following.from_seq} to {following.to_seq} of {following.stream!a}"
                raise Malformed(f"expected gaps in order and without overlap, got {detail}")
        return gap_file


def _gap(value: Any) -> ExportGap:
    gap = ExportGap(value["stream"], value["from"], value["to"])
    if type(gap.stream) is not str or type(gap.from_seq) is not int:
        raise Malformed("a gap: expected a stream, and integers as from and to")
    if type(gap.to_seq) is not int or not 1 <= gap.from_seq <= gap.to_seq < _MOST:
        raise Malformed(f"a gap: expected a range, got {gap.from_seq} to {gap.to_seq}")
    return gap


def _verify_version(document: Any) -> None:
    if isinstance(document, dict) and document.get("version", _VERSION) != _VERSION:
        raise WrongVersion(
            f"expected version {_VERSION}, got {document['version']!r}: {LATER_RELEASE}"
        )
