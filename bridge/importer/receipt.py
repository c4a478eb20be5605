"""Bodies of imported events, and the printable receipt of an import (AGB0 4.5).

A body is what the origin signed, byte for byte, or a placeholder where the zone's policy excludes
an event. The receipt is a page of text, a picture with a QR code, and six words. It is for people,
who may carry it or read it out; no program of the exporting zone reads it. The same import gives
the same receipt.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final, NamedTuple

from qrcode.constants import ERROR_CORRECT_M
from qrcode.main import QRCode
from qrcode.util import MODE_8BIT_BYTE, QRData

from bridge.bundle import BundleEvent
from bridge.errors import printable, words
from bridge.importer.examine import LoadedBundle
from bridge.importer.ledger import BundleRow, ImportPlan, SeqSpan
from bridge.settings import ExclusionRule
from veen.crypto import SigningKey, signature_is_valid
from veen.digest import ht, u64be
from veen.errors import Malformed, Untrusted
from veen.events import ImportedEvent, RecordEvent
from veen.label import DEFAULT_PROFILE
from veen.msg import Msg
from veen.payload import open_body
from veen.wire.body import AnyItem

LARGEST_ORIGIN: Final = 1_040_000
"""The largest message of an origin that fits, with its metadata, into a message of this hub."""

_TOO_LARGE: Final = "its message does not fit into a message of this hub"
_TYPE_UNKNOWN: Final = "its type is not disclosed, and a rule excludes types of this stream"
_VERSION: Final = 1
_IMPORTED: Final = 1
_SIG_BYTES: Final = 64
_SIZE: Final = 166
_BORDER: Final = 4


class Exclusion(NamedTuple):
    """An excluded event; ``position`` counts the events of the bundle from 0."""

    seq: int
    position: int
    leaf_hash: str
    reason: str


def write_exclusions(exclusions: Sequence[Exclusion]) -> str:
    return json.dumps(exclusions)


def read_exclusions(text: str) -> list[Exclusion]:
    return [Exclusion(*fields) for fields in json.loads(text)]


def exclusions(
    loaded: LoadedBundle, spans: Sequence[SeqSpan], row: BundleRow, rules: Sequence[ExclusionRule]
) -> list[Exclusion]:
    """The events to be written that a rule excludes, and why."""
    applicable = [rule for rule in rules if row.stream.startswith(rule.prefix)]
    excluded = []
    for at in _positions(spans, row.from_seq):
        reason = _reason(loaded.events[at], applicable)
        if reason is not None:
            leaf = loaded.receipts[at].leaf_hash.hex()
            excluded.append(Exclusion(row.from_seq + at, at, leaf, reason))
    return excluded


def bodies(
    loaded: LoadedBundle,
    plan: ImportPlan,
    row: BundleRow,
    spans: Sequence[SeqSpan],
    bridge_id: bytes,
) -> Iterator[bytes]:
    """The bodies of a plan in order, which depend on the plan alone."""
    reasons = {exclusion.position: exclusion.reason for exclusion in read_exclusions(plan.excluded)}
    for position, at in enumerate(_positions(spans, row.from_seq)):
        event, reason = loaded.events[at], reasons.get(at)
        metadata = event.metadata if event.body_key is None and reason is None else None
        yield ImportedEvent(
            source_hub_id=row.source_hub_id,
            origin_stream=row.stream,
            origin_msg=event.payload if reason is None else None,
            origin_receipt=event.receipt,
            body_key=event.body_key if reason is None else None,
            metadata=AnyItem(metadata.encode()) if metadata is not None else None,
            bundle_id=row.bundle_id,
            position=position,
            count=plan.written,
            import_time=plan.import_time,
            bridge_id=bridge_id,
            excluded=reason,
        ).encode()


def _positions(spans: Sequence[SeqSpan], first: int) -> Iterator[int]:
    for span in spans:
        yield from range(span.first - first, span.last - first + 1)


def _reason(event: BundleEvent, rules: Sequence[ExclusionRule]) -> str | None:
    if rules:
        kind = _event_type(event)
        for rule in rules:
            if kind == rule.event_type:
                return rule.reason
        if kind is None:
            return _TYPE_UNKNOWN
    return _TOO_LARGE if len(event.payload) > LARGEST_ORIGIN else None


def _event_type(event: BundleEvent) -> str | None:
    if event.metadata is not None:
        return event.metadata.event_type
    if event.body_key is None:
        return None
    try:
        msg = Msg.decode(event.payload)
        body = open_body(body_key=event.body_key, msg=msg, profile=DEFAULT_PROFILE)
        return RecordEvent.decode(body).event_type
    except (Malformed, Untrusted):
        return None


@dataclass(frozen=True, slots=True)
class PrintedReceipt:
    """The content of the QR code: 166 bytes, the last 64 of them the importer's signature."""

    raw: bytes

    @classmethod
    def of(cls, row: BundleRow, plan: ImportPlan, key: SigningKey) -> PrintedReceipt:
        content = (
            bytes([_VERSION])
            + row.bundle_id
            + row.source_hub_id[:8]
            + u64be(row.from_seq)
            + u64be(row.to_seq)
            + plan.written.to_bytes(4, "big")
            + bytes([_IMPORTED])
            + plan.target_root
            + u64be(plan.import_time)
        )
        return cls(content + key.sign(_digest(content)))

    @classmethod
    def decode(cls, raw: bytes) -> PrintedReceipt:
        if len(raw) != _SIZE or raw[0] != _VERSION:
            raise Malformed(
                f"expected a printed receipt of version {_VERSION} in {_SIZE} bytes, got version "
                f"{raw[0] if raw else None} in {len(raw)} bytes"
            )
        return cls(raw)

    def is_signed_by(self, public: bytes) -> bool:
        content, signature = self.raw[:-_SIG_BYTES], self.raw[-_SIG_BYTES:]
        return signature_is_valid(public, signature, _digest(content))

    def words(self) -> str:
        """Six words that two people can compare over a telephone: 96 bits of its digest."""
        return words(ht("veen/agb0-receipt-words", self.raw[:-_SIG_BYTES]))


def receipt_files(
    printed: PrintedReceipt, row: BundleRow, plan: ImportPlan
) -> tuple[tuple[str, str], ...]:
    """The files of a receipt: paths inside the import directory, and their text."""
    stem = f"receipts/{row.bundle_id.hex()}"
    return (f"{stem}.txt", text(printed, row, plan)), (f"{stem}.svg", svg(printed, row))


def text(printed: PrintedReceipt, row: BundleRow, plan: ImportPlan) -> str:
    placeholders = len(read_exclusions(plan.excluded))
    when = datetime.fromtimestamp(plan.import_time, UTC)
    lines = [
        "Receipt of an import over the VEEN air-gap bridge (AGB0)",
        "",
        f"Words       {printed.words()}",
        f"Bundle      {row.bundle_id.hex()}",
        f"From hub    {row.source_hub_id.hex()}",
        f"Stream      {printable(row.stream)}",
        f"Events      {row.from_seq} to {row.to_seq} ({row.count})",
        f"Imported    {plan.written}, of which {placeholders} as placeholders",
        f"Duplicates  {plan.duplicates}",
        f"Into        {printable(row.target)}, {plan.base_seq + 1} to {plan.target_to}",
        f"Root        {plan.target_root.hex()}",
        f"Checkpoint  {row.checkpoint_id.hex()}",
        f"Time        {when:%Y-%m-%dT%H:%M:%SZ} by the importer's clock",
        f"Checked     {printable(plan.verification)}",
        "",
        "The QR code holds, in hex:",
        *(printed.raw.hex()[at : at + 64] for at in range(0, 2 * _SIZE, 64)),
        "",
        "Received by ______________________   Date ______________",
    ]
    return "".join(f"{line}\n" for line in lines)


def svg(printed: PrintedReceipt, row: BundleRow) -> str:
    """A page with the QR code and, below it, the text that people compare."""
    code = QRCode(error_correction=ERROR_CORRECT_M, border=_BORDER)
    code.add_data(QRData(printed.raw, mode=MODE_8BIT_BYTE), optimize=0)
    code.make(fit=True)
    matrix = code.get_matrix()
    size = len(matrix)
    squares = "".join(
        f"M{x} {y}h1v1h-1z" for y, line in enumerate(matrix) for x, dark in enumerate(line) if dark
    )
    captions = (
        *(" ".join(printed.words().split()[at : at + 3]) for at in (0, 3)),
        row.bundle_id.hex()[:32],
        row.bundle_id.hex()[32:],
        f"events {row.from_seq} to {row.to_seq}",
    )
    written = "".join(
        f'<text x="{_BORDER}" y="{size + 3 * number}" font-size="2.4" font-family="monospace">'
        f"{line}</text>\n"
        for number, line in enumerate(captions, 1)
    )
    height = size + 3 * len(captions) + _BORDER
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {size} {height}"'
        f' width="{size * 2}mm" height="{height * 2}mm">\n'
        f'<rect width="{size}" height="{height}" fill="#fff"/>\n<path d="{squares}"/>\n'
        f"{written}</svg>\n"
    )


def _digest(value: bytes) -> bytes:
    return ht("veen/agb0-receipt", value)
