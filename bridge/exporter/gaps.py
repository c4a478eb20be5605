"""The gap file: what the other zone lacks, carried back by hand to be exported again (AGB0 4.7).

It is read here and goes no further: nothing of it is written to a stream.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

from veen.errors import Malformed
from veen.wire import canonical_json
from veen.wire.canonical_json import parse_json

_VERSION: Final = 1
_MOST: Final = 1 << 63
MAX_BYTES: Final = 1 << 20
"""Some ten thousand gaps; whoever lacks more takes everything again."""


@dataclass(frozen=True, slots=True, order=True)
class ExportGap:
    """Events that are missing, both ends included."""

    stream: str
    from_seq: int
    to_seq: int


@dataclass(frozen=True, slots=True)
class GapFile:
    """What is missing of one hub's streams, in order."""

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
        """The file at a path, of which no more is read than a gap file may be long."""
        with path.open("rb") as file:
            raw = file.read(MAX_BYTES + 1)
        try:
            return cls.decode(raw)
        except Malformed as error:
            raise Malformed(
                f"{path}: {error}; take the one that veen bridge reconcile wrote"
            ) from error

    @classmethod
    def decode(cls, raw: bytes) -> GapFile:
        if len(raw) > MAX_BYTES:
            raise Malformed(f"longer than {MAX_BYTES} bytes, no gap file is")
        value = parse_json(raw)
        try:
            result = cls(bytes.fromhex(value["source_hub_id"]), tuple(map(_gap, value["gaps"])))
        except (KeyError, TypeError, ValueError) as error:
            raise Malformed(f"not a gap file: {error}") from error
        if result.encode() != raw.removesuffix(b"\n") or len(result.source_hub_id) != 32:
            raise Malformed("not a gap file as veen bridge reconcile writes it")
        for item, following in pairwise(result.gaps):
            if (following.stream, following.from_seq) <= (item.stream, item.to_seq):
                detail = f"{following.from_seq} to {following.to_seq} of {following.stream!a}"
                raise Malformed(f"gaps that overlap or are out of order, at {detail}")
        return result


def _gap(value: Any) -> ExportGap:
    export_gap = ExportGap(value["stream"], value["from"], value["to"])
    if type(export_gap.stream) is not str or type(export_gap.from_seq) is not int:
        raise Malformed("a gap names a stream, and numbers")
    if (
        type(export_gap.to_seq) is not int
        or not 1 <= export_gap.from_seq <= export_gap.to_seq < _MOST
    ):
        raise Malformed(f"a gap from {export_gap.from_seq} to {export_gap.to_seq}")
    return export_gap
