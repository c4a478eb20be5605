"""The manifest that binds checkpoints to the hub, against the checkpoints themselves (spec 8.4)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from veen import cbor, layout
from veen.audit.artefacts import first_difference
from veen.audit.report import Fault
from veen.errors import Malformed
from veen.hub_identity import CheckpointBinding

Place = tuple[bytes, int]
"""Label and upto_seq of a checkpoint."""


class Line(NamedTuple):
    at: int
    raw: bytes
    binding: CheckpointBinding | None


def read_lines(raw: bytes, hub_id: bytes) -> Iterator[Line]:
    """The lines of a manifest; one that cannot be read goes up to where the next begins."""
    begin = b"\xa7\x01\x01\x02\x58\x20" + hub_id
    at = 0
    while at < len(raw):
        end, found = _line(raw, at)
        if found is None:
            following = raw.find(begin, at + 1)
            end = following if following >= 0 else len(raw)
        yield Line(at, raw[at:end], found)
        at = end


def check_bindings(
    raw: bytes, hub_id: bytes, due: Mapping[Place, tuple[bytes, ...]]
) -> list[Fault]:
    """Every line names a checkpoint that is here, and every checkpoint has its line."""
    missing = {place for place, lines in due.items() if lines}
    bad: list[Line] = []
    for line in read_lines(raw, hub_id):
        found = line.binding
        place = (found.label, found.upto_seq) if found else None
        lines = due.get(place) if place else None
        if place is not None and (lines == () or line.raw in (lines or ())):
            missing.discard(place)
        else:
            bad.append(line)
    return [*_strange(bad, missing, due), *_unbound(missing, len(raw))]


def _strange(
    bad: list[Line], missing: set[Place], due: Mapping[Place, tuple[bytes, ...]]
) -> Iterator[Fault]:
    """Each bad line is held against the missing one it is most like."""
    for line in bad:
        near = [
            (first_difference(line.raw, one), place)
            for place in missing
            for one in due[place]
            if line.raw != one
        ]
        where, place = max(near, default=(0, None))
        what = "binds no checkpoint of this hub"
        yield Fault(layout.CHECKPOINT_BINDING, line.at + where, None, what, "BINDING")
        if place is not None:
            missing.discard(place)


def _unbound(missing: set[Place], size: int) -> Iterator[Fault]:
    for label, upto in sorted(missing):
        what = f"no line for the checkpoint of label {label.hex()} at {upto}"
        yield Fault(layout.CHECKPOINT_BINDING, size, upto, what, "BINDING")


def _line(raw: bytes, at: int) -> tuple[int, CheckpointBinding | None]:
    try:
        end = cbor.skip(raw, at)
        return end, CheckpointBinding.decode(raw[at:end])
    except Malformed:
        return len(raw), None
