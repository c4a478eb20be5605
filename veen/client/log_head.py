"""Equivocation: two receipts of one hub that cannot both be true, kept and reported (spec 14).

A message with the receipt that gives it its place, both verified.

How far a label goes: the end of what a hub shows of it, as a receipt that it signed.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from veen.client.session import Session
from veen.client.transport import Fork, HubRefused, Unreachable
from veen.digest import h
from veen.errors import Code, Malformed, Rejected, Untrusted
from veen.label import EpochLabels
from veen.msg import Msg
from veen.receipt import Receipt
from veen.system import durable
from veen.wire.api import EquivocationReport

DIRECTORY: Final = "evidence"
_ID_DIGITS: Final = 16
_log = logging.getLogger(__name__)


def store_evidence(session: Session, first: Receipt, second: Receipt) -> Fork:
    """Verify the pair, write it down durably and tell the hub; the caller raises the result."""
    if not first.contradicts(second):
        raise Untrusted("the two receipts do not contradict each other")
    for item in (first, second):
        session.verify_receipt(item)
    report = _report(first, second)
    path = _write(session.root / DIRECTORY, report)
    detail = _tell(session, report)
    _log.critical("the hub signed two histories: %s; %s", path, detail)
    return Fork(f"{_what(report)}; {detail}", path)


def _report(first: Receipt, second: Receipt) -> EquivocationReport:
    """One pair is one piece of evidence, whichever way round it was met."""
    earlier, later = sorted((first, second), key=lambda item: (item.stream_seq, item.encode()))
    return EquivocationReport(ver=1, first=earlier, second=later)


def _write(directory: Path, report: EquivocationReport) -> Path:
    """Another contradiction at the same place goes beside the first."""
    durable.make_directory(directory)
    durable.sync_directory(directory.parent)
    raw = report.encode()
    stem = f"equivocation-{report.first.label.hex()}-{report.first.stream_seq}"
    path = directory / f"{stem}.cbor"
    if path.exists() and path.read_bytes() != raw:
        path = directory / f"{stem}-{h(raw).hex()[:_ID_DIGITS]}.cbor"
    durable.write_once(path, raw)
    return path


def _tell(session: Session, report: EquivocationReport) -> str:
    try:
        session.api.report_equivocation(report.first, report.second)
    except (HubRefused, Rejected, Unreachable, Malformed) as error:
        return f"the hub did not take the report ({error})"
    return "the hub was told"


def _what(report: EquivocationReport) -> str:
    first, second = report.first, report.second
    if first.stream_seq == second.stream_seq:
        return f"the hub signed two receipts for stream_seq {first.stream_seq} of {_of(first)}"
    return (
        f"the hub signed one message at stream_seq {first.stream_seq} and {second.stream_seq} "
        f"of {_of(first)}"
    )


def _of(receipt: Receipt) -> str:
    return f"label {receipt.label.hex()}"


@dataclass(frozen=True, slots=True)
class Pair:
    msg: Msg
    receipt: Receipt


@dataclass(frozen=True, slots=True)
class LabelLogRef:
    """One label of a stream: the log that a hub orders, and what its numbers count in."""

    labels: EpochLabels
    name: str
    epoch: int

    @property
    def label(self) -> bytes:
        return self.labels.at(self.epoch)

    def at(self, seq: int) -> str:
        """A place of it, for whoever is told that something is wrong there."""
        epoch = f" in epoch {self.epoch}" if self.labels.profile.epoch_sec else ""
        return f"{self.name}{epoch}, stream_seq {seq}"


def is_missing(error: HubRefused) -> bool:
    return error.code == Code.NOT_FOUND.value


def exists(session: Session, label: bytes, seq: int) -> bool:
    """Whether the label has a ``seq``; its proofs outlive entries that retention took away."""
    try:
        session.api.consistency(label, seq, seq)
    except HubRefused as error:
        if not is_missing(error):
            raise
        return False
    return True


def read_log_head(session: Session, log: LabelLogRef, known: int) -> Receipt | None:
    """The receipt at the end of a label, in O(log n) requests; None where there is nothing.

    No route tells the end of a label that has no name, so it is looked for: from what the hub
    has signed before, ``known``, upwards, or from its latest checkpoint.
    """
    if known and not exists(session, log.label, known):
        raise Untrusted(f"{log.at(known)}: the hub signed it once and now says it is not there")
    size = _size(session, log.label, max(known, _hint(session, log.label)))
    return receipt_at(session, log, size) if size else None


def receipt_at(session: Session, log: LabelLogRef, seq: int) -> Receipt:
    """The receipt of a place, signed by the pinned hub."""
    receipt = session.api.receipt(log.label, seq)
    if (receipt.label, receipt.stream_seq) != (log.label, seq):
        raise Untrusted(f"{log.at(seq)}: the receipt is of {receipt.stream_seq}, or another label")
    session.verify_receipt(receipt)
    return receipt


def is_readable(session: Session, log: LabelLogRef, seq: int) -> bool:
    """Whether the entry itself is still there."""
    try:
        session.api.receipt(log.label, seq)
    except HubRefused as error:
        if not is_missing(error):
            raise
        return False
    return True


def first_readable(session: Session, log: LabelLogRef, gone: int, there: int) -> int:
    """Retention takes entries from the start, without holes; the last one is always there."""
    while there - gone > 1:
        middle = (gone + there) // 2
        if is_readable(session, log, middle):
            there = middle
        else:
            gone = middle
    return there


def _hint(session: Session, label: bytes) -> int:
    """The size of the latest checkpoint, if there is one; nothing is believed of it."""
    try:
        upto_seq = session.api.checkpoint_latest(label).upto_seq
    except HubRefused as error:
        if not is_missing(error):
            raise
        return 0
    return upto_seq if exists(session, label, upto_seq) else 0


def _size(session: Session, label: bytes, least: int) -> int:
    low, step = least, 1
    while exists(session, label, low + step):
        low, step = low + step, 2 * step
    high = low + step
    while high - low > 1:
        middle = (low + high) // 2
        if exists(session, label, middle):
            low = middle
        else:
            high = middle
    return low
