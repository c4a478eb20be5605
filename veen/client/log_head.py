"""The head of a label's log at a hub, and evidence of equivocation (spec 14).

``read_log_head`` finds the last entry by its signed receipt. ``store_evidence`` stores and reports
two receipts of a hub that cannot both be true.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from veen.client.hub_api import HubApi
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
    """Verify the pair, store it durably and report it to the hub; the error to raise."""
    if not first.contradicts(second):
        raise Untrusted("the two receipts do not contradict each other")
    for receipt in (first, second):
        session.verify_receipt(receipt)
    report = _report(first, second)
    path = _write(session.root / DIRECTORY, report)
    outcome = _send_report(session, report)
    _log.critical("the hub signed two histories: %s; %s", path, outcome)
    return Fork(f"{_describe_fork(report)}; {outcome}", path)


def _report(first: Receipt, second: Receipt) -> EquivocationReport:
    """The report with its receipts in a fixed order, so that a pair is stored once."""
    earlier, later = sorted((first, second), key=lambda item: (item.stream_seq, item.encode()))
    return EquivocationReport(ver=1, first=earlier, second=later)


def _write(directory: Path, report: EquivocationReport) -> Path:
    """Store a report; another one at the same stream_seq gets its own file."""
    durable.make_directory(directory)
    durable.sync_directory(directory.parent)
    raw = report.encode()
    stem = f"equivocation-{report.first.label.hex()}-{report.first.stream_seq}"
    path = directory / f"{stem}.cbor"
    if path.exists() and path.read_bytes() != raw:
        path = directory / f"{stem}-{h(raw).hex()[:_ID_DIGITS]}.cbor"
    durable.write_once(path, raw)
    return path


def _send_report(session: Session, report: EquivocationReport) -> str:
    try:
        session.api.report_equivocation(report.first, report.second)
    except (HubRefused, Rejected, Unreachable, Malformed) as error:
        return f"the hub did not accept the report ({error})"
    return "the fork was reported to the hub"


def _describe_fork(report: EquivocationReport) -> str:
    first, second = report.first, report.second
    if first.stream_seq == second.stream_seq:
        return (
            f"the hub signed two receipts for stream_seq {first.stream_seq} of {_label_of(first)}"
        )
    return (
        f"the hub signed one message at stream_seq {first.stream_seq} and {second.stream_seq} "
        f"of {_label_of(first)}"
    )


def _label_of(receipt: Receipt) -> str:
    return f"label {receipt.label.hex()}"


@dataclass(frozen=True, slots=True)
class Pair:
    """A message and its receipt, both verified."""

    msg: Msg
    receipt: Receipt


@dataclass(frozen=True, slots=True)
class LabelLogRef:
    """A label of a stream, by its epoch."""

    labels: EpochLabels
    name: str
    epoch: int

    @property
    def label(self) -> bytes:
        return self.labels.at(self.epoch)

    def at(self, seq: int) -> str:
        """A stream_seq of the label in words, for error messages."""
        epoch = f" in epoch {self.epoch}" if self.labels.profile.epoch_sec else ""
        return f"{self.name}{epoch}, stream_seq {seq}"


def is_missing(error: HubRefused) -> bool:
    return error.code == Code.NOT_FOUND.value


def exists(session: Session, label: bytes, seq: int) -> bool:
    """Whether the label has a stream_seq; proofs remain for pruned entries."""
    try:
        session.api.consistency(label, seq, seq)
    except HubRefused as error:
        if not is_missing(error):
            raise
        return False
    return True


def read_log_head(session: Session, log: LabelLogRef, known: int) -> Receipt | None:
    """The receipt at the end of a label, in O(log n) requests; None if it is empty.

    There is no route for the end of a label without a name, so it is searched upwards from
    ``known``, which the hub has signed before, or from its latest checkpoint.
    """
    if known and not exists(session, log.label, known):
        raise Untrusted(f"{log.at(known)}: the hub signed this entry before and now denies it")
    size = _size(session, log.label, max(known, _hint(session, log.label)))
    return receipt_at(session, log, size) if size else None


def receipt_at(session: Session, log: LabelLogRef, seq: int) -> Receipt:
    """The receipt of a place, signed by the pinned hub."""
    receipt = session.api.receipt(log.label, seq)
    if (receipt.label, receipt.stream_seq) != (log.label, seq):
        raise Untrusted(
            f"{log.at(seq)}: expected the receipt of this entry, got that of {receipt.stream_seq} "
            "or of another label"
        )
    session.verify_receipt(receipt)
    return receipt


def is_readable(api: HubApi, label: bytes, seq: int) -> bool:
    """Whether the entry is not pruned."""
    try:
        api.receipt(label, seq)
    except HubRefused as error:
        if not is_missing(error):
            raise
        return False
    return True


def first_readable(api: HubApi, label: bytes, gone: int, there: int) -> int:
    """The first entry that is not pruned, by bisection; entries are pruned from the start."""
    while there - gone > 1:
        middle = (gone + there) // 2
        if is_readable(api, label, middle):
            there = middle
        else:
            gone = middle
    return there


def _hint(session: Session, label: bytes) -> int:
    """The unverified size of the latest checkpoint, or 0."""
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
