"""The report of an audit: faults of the log, notes, stale derived state; and its signed form."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

from veen.crypto import SigningKey, signature_is_valid
from veen.digest import ht
from veen.errors import Malformed, Untrusted
from veen.wire import canonical_json


class AuditFault(NamedTuple):
    """A place where the log differs from what its hub signed, and the rule that it breaks."""

    file: str
    offset: int
    stream_seq: int | None
    what: str
    code: str

    def order(self) -> tuple[str, int, int, str, str]:
        """The sort key of faults: by file, then by offset."""
        return self.file, self.offset, self.stream_seq or 0, self.code, self.what


class LabelHead(NamedTuple):
    """The end of a label; ``root`` is None when a fault leaves it unknown."""

    head_seq: int
    root: bytes | None


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditReport:
    labels: int
    chunks: int
    entries: int
    checkpoints: int
    heads: dict[bytes, LabelHead]
    faults: tuple[AuditFault, ...]
    notes: tuple[str, ...]
    derived: tuple[str, ...]

    @property
    def ok(self) -> bool:
        """Whether the log is intact. Derived state does not count: it can be rebuilt."""
        return not self.faults

    def to_json(self) -> bytes:
        return canonical_json.encode(self._plain())

    @classmethod
    def from_json(cls, raw: bytes) -> AuditReport:
        """The report whose canonical JSON is ``raw``, or Malformed."""
        return _verify_canonical(_read(_parse(raw)), raw)

    def signed(self, key: SigningKey) -> SignedAuditReport:
        return SignedAuditReport(self, key.public, key.sign(_digest(self)))

    def _plain(self) -> dict[str, Any]:
        return {
            "ok": self.ok,
            "labels": self.labels,
            "chunks": self.chunks,
            "entries": self.entries,
            "checkpoints": self.checkpoints,
            "heads": {label.hex(): _head(head) for label, head in self.heads.items()},
            "faults": [fault._asdict() for fault in self.faults],
            "notes": list(self.notes),
            "derived": list(self.derived),
        }


@dataclass(frozen=True, slots=True)
class SignedAuditReport:
    """A report with its signature, under a domain tag of its own."""

    report: AuditReport
    signed_by: bytes
    sig: bytes

    def verify(self, public: bytes) -> AuditReport:
        """The report, if the holder of ``public`` has signed it."""
        is_theirs = self.signed_by == public
        if not (is_theirs and signature_is_valid(public, self.sig, _digest(self.report))):
            raise Untrusted(f"the audit report is not signed by {public.hex()}")
        return self.report

    def to_json(self) -> bytes:
        return canonical_json.encode(
            {
                "report": json.loads(self.report.to_json()),
                "signed_by": self.signed_by.hex(),
                "sig": self.sig.hex(),
            }
        )

    @classmethod
    def from_json(cls, raw: bytes) -> SignedAuditReport:
        document = _parse(raw)
        try:
            report = _read(document["report"])
            signed = cls(
                report, bytes.fromhex(document["signed_by"]), bytes.fromhex(document["sig"])
            )
        except (KeyError, TypeError, ValueError) as error:
            raise Malformed(f"expected a signed audit report: {error}") from error
        return _verify_canonical(signed, raw)


ReportT = TypeVar("ReportT", AuditReport, SignedAuditReport)


def _digest(report: AuditReport) -> bytes:
    return ht("veen/audit-report", report.to_json())


def _head(head: LabelHead) -> dict[str, object]:
    return {"head_seq": head.head_seq, "root": head.root.hex() if head.root else None}


def _parse(raw: bytes) -> Any:
    try:
        return json.loads(raw)
    except ValueError as error:
        raise Malformed(f"audit report: expected JSON: {error}") from error


def _verify_canonical(report: ReportT, raw: bytes) -> ReportT:
    if report.to_json() != raw:
        raise Malformed("audit report: expected canonical JSON, got another form")
    return report


def _read(document: Any) -> AuditReport:
    try:
        return AuditReport(
            labels=int(document["labels"]),
            chunks=int(document["chunks"]),
            entries=int(document["entries"]),
            checkpoints=int(document["checkpoints"]),
            heads=_heads(document["heads"]),
            faults=tuple(AuditFault(**fault) for fault in document["faults"]),
            notes=tuple(document["notes"]),
            derived=tuple(document["derived"]),
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise Malformed(f"audit report: invalid fields: {error}") from error


def _heads(heads: Mapping[str, Any]) -> dict[bytes, LabelHead]:
    return {
        bytes.fromhex(label): LabelHead(head["head_seq"], _root(head["root"]))
        for label, head in heads.items()
    }


def _root(value: str | None) -> bytes | None:
    return None if value is None else bytes.fromhex(value)
