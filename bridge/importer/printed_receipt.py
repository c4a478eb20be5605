"""The printable receipt of an import: one page of text, a picture with a QR code, six words.

It is for people, who may carry it or read it out. Nothing in the exporting zone ever reads it by
itself; the same import gives the same receipt.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from qrcode.constants import ERROR_CORRECT_M
from qrcode.main import QRCode
from qrcode.util import MODE_8BIT_BYTE, QRData

from bridge.importer.bodies import read_exclusions
from bridge.importer.ledger_tables import BundleRow, Plan
from bridge.printable import printable
from bridge.words import words
from veen import sign
from veen.digest import ht, u64be
from veen.errors import Malformed

_VERSION: Final = 1
_IMPORTED: Final = 1
_SIG_BYTES: Final = 64
_SIZE: Final = 166
_BORDER: Final = 4


@dataclass(frozen=True, slots=True)
class PrintedReceipt:
    """What the QR code holds: 166 bytes, the last 64 of them the importer's signature."""

    raw: bytes

    @classmethod
    def of(cls, row: BundleRow, plan: Plan, key: sign.PrivateKey) -> PrintedReceipt:
        told = (
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
        return cls(told + key.sign(_digest(told)))

    @classmethod
    def decode(cls, raw: bytes) -> PrintedReceipt:
        if len(raw) != _SIZE or raw[0] != _VERSION:
            raise Malformed("not a printed receipt of this version")
        return cls(raw)

    def is_signed_by(self, public: bytes) -> bool:
        told, signature = self.raw[:-_SIG_BYTES], self.raw[-_SIG_BYTES:]
        return sign.is_valid(public, signature, _digest(told))

    def words(self) -> str:
        """Six words that two people can compare over a telephone: 96 bits of its digest."""
        return words(ht("veen/agb0-receipt-words", self.raw[:-_SIG_BYTES]))


def receipt_files(
    printed: PrintedReceipt, row: BundleRow, plan: Plan
) -> tuple[tuple[str, str], ...]:
    """Paths inside the airlock, with the text that stands there."""
    stem = f"receipts/{row.bundle_id.hex()}"
    return (f"{stem}.txt", text(printed, row, plan)), (f"{stem}.svg", svg(printed, row))


def text(printed: PrintedReceipt, row: BundleRow, plan: Plan) -> str:
    placeholders = len(read_exclusions(plan.kept_out))
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
    """A page with the QR code and, below it, what a person compares."""
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


def _digest(told: bytes) -> bytes:
    return ht("veen/agb0-receipt", told)
