"""Equivocation: two receipts of one hub that cannot both be true, kept and reported (spec 14)."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Final

from veen import durable
from veen.client.errors import Fork, HubRefused, Unreachable
from veen.client.session import Session
from veen.digest import h
from veen.errors import Malformed, Rejected, Untrusted
from veen.receipt import Receipt
from veen.tooling import EquivocationReport

DIRECTORY: Final = "evidence"
_ID_DIGITS: Final = 16
_log = logging.getLogger(__name__)


def keep(session: Session, first: Receipt, second: Receipt) -> Fork:
    """Verify the pair, write it down durably and tell the hub; the caller raises the result."""
    if not first.contradicts(second):
        raise Untrusted("the two receipts do not contradict each other")
    for one in (first, second):
        session.verify_receipt(one)
    report = _report(first, second)
    path = _write(session.root / DIRECTORY, report)
    told = _tell(session, report)
    _log.critical("the hub signed two histories: %s; %s", path, told)
    return Fork(f"{_what(report)}; {told}", path)


def _report(first: Receipt, second: Receipt) -> EquivocationReport:
    """One pair is one piece of evidence, whichever way round it was met."""
    earlier, later = sorted((first, second), key=lambda one: (one.stream_seq, one.encode()))
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
