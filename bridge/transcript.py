"""The transcript of a check, for the files of whoever made it.

The same check at the same time is the same text; how old the checkpoint was is a fact for people,
and refuses nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime

from bridge.carrier.age import age_told
from bridge.carrier.carrier import FORMAT, TOOL
from bridge.carrier.check import Report
from bridge.carrier.ledger import Ledger
from bridge.printable import printable
from bridge.refusal import Level
from bridge.verify import Verified

_LINE = 4000
_MEANING = {
    Level.COMPLETE: "every volume is there, or parity makes it good",
    Level.INTACT: "every byte is as the exporter wrote it",
    Level.VALID: "signatures, proofs and events hold",
}


def transcript(report: Report) -> str:
    """Plain text, one fact a line; nothing in it can move a cursor or end a line."""
    return "".join(f"{line}\n" for line in _lines(report))


def _lines(report: Report) -> Iterator[str]:
    yield "Check of an AGB0 carrier"
    yield f"checked by   {TOOL}, which reads format {FORMAT}"
    yield f"asked        {report.asked.value}"
    yield f"verdict      {'accepted' if report.ok else 'REFUSED'} ({report.verdict})"
    if report.refusal is not None:
        yield f"reason       {printable(str(report.refusal), _LINE)}"
    for level in Level:
        yield f"{level.value:<12} {_state(report, level)}: {_MEANING[level]}"
    if report.carrier is not None:
        carrier = report.carrier
        yield f"set          {carrier.set_id.hex()}"
        yield f"volumes      {carrier.data} data, {carrier.parity} parity, {carrier.bags} media"
        yield f"made by      {printable(carrier.tool)}, in format {carrier.ver}"
    if report.signer is not None:
        yield f"signed by    {printable(report.signer)}"
    if report.ledger is not None:
        yield from _ledger(report.ledger)
    if report.bundle is not None:
        yield from _bundle(report.bundle)
    if report.heartbeat is not None:
        yield f"heartbeat    checkpoint {report.heartbeat.checkpoint_id.hex()}"
    yield from _times(report)
    yield from (f"note         {printable(note, _LINE)}" for note in report.notes)


def _times(report: Report) -> Iterator[str]:
    if report.hub is not None:
        since = _date(report.hub.current.valid_from)
        yield f"identity     {report.hub.number} of the hub, the newest known here, since {since}"
    if report.now is not None:
        yield f"checked at   {_date(report.now)}"
    if report.age_sec is not None:
        yield f"age          checkpoint is {age_told(report.age_sec)}"


def _state(report: Report, level: Level) -> str:
    if level in report.held:
        return "holds"
    if report.refusal is not None and report.refusal.fault.level is level:
        return "DOES NOT HOLD"
    return "not tested"


def _date(seconds: int) -> str:
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%SZ}"


def _ledger(ledger: Ledger) -> Iterator[str]:
    entry = ledger.tail[-1]
    yield f"bridge       {ledger.bridge_id.hex()}"
    yield f"ledger       entry {entry.n}, hash {entry.entry_hash().hex()}"
    if entry.bundle_id is not None:
        yield f"bundle       {entry.bundle_id.hex()}"
        yield f"hub          {entry.hub_id.hex()}"
        yield f"stream       {printable(entry.stream)}"
        yield f"events       {entry.from_seq} to {entry.to_seq}"


def _bundle(found: Verified) -> Iterator[str]:
    checkpoint = found.header.export_checkpoint
    yield f"checkpoint   {checkpoint.checkpoint_id.hex()} of hub time {checkpoint.created_at}"
    yield f"joins        {found.continuity.value}"
    yield f"root         {found.root.hex()} at {found.header.export_seq_to}"
    yield f"metadata     {found.told} told, {found.unopened} of them not checked against the body"
