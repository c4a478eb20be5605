"""Rates, which span labels: every use of a capability in the order of hub time (I7)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from veen import layout
from veen.audit import leaves
from veen.audit.context import Context
from veen.audit.findings import Read, Use
from veen.audit.frames import Good, split
from veen.audit.report import Fault
from veen.rate import Bucket, Rate


class Placed(NamedTuple):
    """Uses of one second in one chunk."""

    file: str
    label: bytes
    start_seq: int
    use: Use


class _Excess(NamedTuple):
    placed: Placed
    times: int


def check_rates(uses: Iterable[Placed], context: Context, read: Read) -> Iterator[Fault]:
    """Debit every use; those beyond what the rate allows are looked up and told."""
    by_ref: dict[bytes, list[Placed]] = {}
    for placed in uses:
        by_ref.setdefault(placed.use.auth_ref, []).append(placed)
    for ref, found in by_ref.items():
        token, issued_at = context.capabilities[ref]
        if token.allow.rate is None:
            continue
        for excess in _debited(found, token.allow.rate, issued_at):
            yield from _told(excess, context, read)


def _debited(uses: list[Placed], rate: Rate, issued_at: int) -> Iterator[_Excess]:
    bucket = Bucket.full(rate, issued_at)
    for placed in sorted(uses, key=lambda one: (one.use.hub_ts, one.label, one.start_seq)):
        bucket = bucket.refilled(rate, placed.use.hub_ts)
        allowed = min(bucket.tokens, placed.use.times)
        bucket = Bucket(bucket.tokens - allowed, bucket.at)
        if placed.use.times > allowed:
            yield _Excess(placed, placed.use.times - allowed)


def _told(excess: _Excess, context: Context, read: Read) -> Iterator[Fault]:
    """The last uses of the second are those that were too many."""
    places = sorted(dict(_places(excess.placed, context, read)).items())
    for seq, at in places[-excess.times :]:
        what = "faster than the capability allows"
        yield Fault(excess.placed.file, at, seq, what, "I7")


def _places(placed: Placed, context: Context, read: Read) -> Iterator[tuple[int, int]]:
    """stream_seq and offset of the entries of one second under one capability."""
    raw = read(placed.file)
    if raw is None:
        yield from _pruned(placed, read)
        return
    for frame in split(raw, placed.label, context.limits):
        if not isinstance(frame, Good):
            continue
        msg, receipt = frame.framed.msg, frame.framed.receipt
        if (msg.auth_ref, receipt.hub_ts) == (placed.use.auth_ref, placed.use.hub_ts):
            yield receipt.stream_seq, frame.at


def _pruned(placed: Placed, read: Read) -> Iterator[tuple[int, int]]:
    name = layout.parse_chunk(placed.file)
    if name is None:
        return
    records = leaves.unpack(read(leaves.leaves(name)) or b"", name)
    for seq, one in enumerate(records, name.start_seq):
        if (one.auth_ref, one.hub_ts) == (placed.use.auth_ref, placed.use.hub_ts):
            yield seq, one.at
