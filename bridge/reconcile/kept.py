"""What a reconciliation leaves behind: the report, its picture, and what to carry back."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from bridge.reconcile.gaps import gap_files
from bridge.reconcile.picture import svg
from bridge.reconcile.report import Report
from bridge.reconcile.signed_report import SignedReport
from veen import durable, sign


@dataclass(frozen=True, slots=True, kw_only=True)
class Places:
    """Where each of them goes, if it is wanted; ``gaps`` is a folder."""

    out: Path | None = None
    picture: Path | None = None
    gaps: Path | None = None


def keep(report: Report, signer: sign.PrivateKey | None, places: Places) -> None:
    """The same bytes, whoever has worked the report out; without a signer it stands unsigned."""
    if places.out is not None:
        encoded = SignedReport.of(report, signer).encode() if signer else report.encode()
        durable.write(places.out.absolute(), encoded + b"\n")
    if places.picture is not None:
        durable.write(places.picture.absolute(), svg(report).encode())
    if places.gaps is not None:
        durable.make_directory(places.gaps.absolute())
        for one in gap_files(report):
            name = f"gap-{one.source_hub_id.hex()[:16]}.json"
            durable.write(places.gaps.absolute() / name, one.encode() + b"\n")
