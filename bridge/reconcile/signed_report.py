"""A report with the signature of whoever made it, for files, audits and anchors (AGB0 6.3)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from bridge.reconcile.report import KIND, Report, digest_of
from veen import canonical_json, json_body, sign
from veen.errors import Malformed, Untrusted


@dataclass(frozen=True, slots=True)
class SignedReport:
    """``report`` is the document; what is signed is the digest of its canonical form."""

    report: dict[str, Any]
    signer: bytes
    signature: bytes

    @classmethod
    def of(cls, report: Report, key: sign.PrivateKey) -> SignedReport:
        return cls(report.document(), key.public, key.sign(report.digest()))

    def digest(self) -> bytes:
        return digest_of(canonical_json.encode(self.report))

    def encode(self) -> bytes:
        return canonical_json.encode(
            {
                "report": self.report,
                "signer": self.signer.hex(),
                "signature": self.signature.hex(),
            }
        )

    @classmethod
    def decode(cls, raw: bytes) -> SignedReport:
        value = json_body.parse(raw)
        try:
            report, signer, signature = value["report"], value["signer"], value["signature"]
            found = cls(report, bytes.fromhex(signer), bytes.fromhex(signature))
        except (KeyError, TypeError, ValueError) as error:
            raise Malformed(f"not a signed report: {error}") from error
        if type(report) is not dict or report.get("kind") != KIND or set(value) != _FIELDS:
            raise Malformed("not a report of veen bridge reconcile")
        if found.encode() != raw.removesuffix(b"\n"):
            raise Malformed("a report that is not in its canonical form")
        return found

    def verify(self, signer: bytes) -> None:
        """Refuse unless ``signer``, who is known from elsewhere, has signed all of it."""
        if self.signer != signer:
            raise Untrusted(f"the report is signed by {self.signer.hex()}")
        if not sign.is_valid(signer, self.signature, self.digest()):
            raise Untrusted("the report is not as it was signed")


_FIELDS = {"report", "signer", "signature"}
