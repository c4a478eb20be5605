"""Approvals: signatures of people over a bundle, of which a rule requires n of m (AGB0 4.5)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from bridge.settings import ApprovalRule
from veen.crypto import SigningKey, signature_is_valid
from veen.digest import ht
from veen.errors import Malformed, Untrusted, VeenError
from veen.system import durable
from veen.wire.objects import WireMap
from veen.wire.schema import Bytes32, Bytes64, Version

APPROVE: Final = "approve"
REJECT: Final = "reject"
_MOST_FILES: Final = 1024
_MAX_BYTES: Final = 1024


class AlreadyDecided(VeenError):
    """An approver has already decided about the bundle."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Approval(WireMap):
    """A signed decision, ``approve`` or ``reject``."""

    ver: Version = 1
    bundle_id: Bytes32
    decision: str
    approver: Bytes32
    signature: Bytes64

    def rule(self) -> None:
        if self.decision not in (APPROVE, REJECT):
            raise Malformed(f"expected the decision {APPROVE} or {REJECT}, got {self.decision!r}")

    @classmethod
    def of(cls, key: SigningKey, bundle_id: bytes, decision: str) -> Approval:
        signature = key.sign(_digest(bundle_id, decision, key.public))
        return cls(bundle_id=bundle_id, decision=decision, approver=key.public, signature=signature)

    def verify(self) -> None:
        digest = _digest(self.bundle_id, self.decision, self.approver)
        if not signature_is_valid(self.approver, self.signature, digest):
            raise Untrusted(
                f"expected an approval signed by {self.approver.hex()}, got another signature"
            )


@dataclass(frozen=True, slots=True)
class ApprovalState:
    """The approvals of a bundle so far."""

    needed: int
    approved: tuple[bytes, ...]
    rejected: tuple[bytes, ...]
    notes: tuple[str, ...] = ()

    @property
    def is_met(self) -> bool:
        return not self.rejected and len(self.approved) >= self.needed

    def describe(self) -> str:
        if self.rejected:
            return f"rejected by {', '.join(approver.hex() for approver in self.rejected)}"
        return f"{len(self.approved)} of {self.needed} approvals are given"


def decide(folder: Path, approval: Approval) -> Path:
    """Store a decision; a second decision of an approver about the same bundle is refused."""
    approval.verify()
    durable.make_directory(folder / approval.bundle_id.hex())
    durable.sync_directory(folder)
    path = folder / approval.bundle_id.hex() / f"{approval.approver.hex()}.cbor"
    if path.exists():
        raise AlreadyDecided(
            f"{path}: expected no decision of this approver about bundle "
            f"{approval.bundle_id.hex()}, got one; another person must decide"
        )
    durable.write(path, approval.encode())
    return path


def approval_state(
    folder: Path, bundle_id: bytes, stream: str, rules: Sequence[ApprovalRule]
) -> ApprovalState:
    """The state of the first unmet rule that applies to the stream; all of them must be met."""
    applicable = [rule for rule in rules if stream.startswith(rule.prefix)]
    notes: list[str] = []
    decided = {
        approval.approver: approval.decision
        for approval in _read(folder / bundle_id.hex(), bundle_id, notes)
    }
    states = [_of_rule(rule, decided, notes) for rule in applicable]
    unmet = [state for state in states if not state.is_met]
    return (unmet or states or [ApprovalState(0, (), ())])[0]


def _of_rule(rule: ApprovalRule, decided: dict[bytes, str], notes: Sequence[str]) -> ApprovalState:
    listed = sorted(set(rule.approvers) & set(decided))
    return ApprovalState(
        rule.needed,
        tuple(approver for approver in listed if decided[approver] == APPROVE),
        tuple(approver for approver in listed if decided[approver] == REJECT),
        tuple(notes),
    )


def _read(folder: Path, bundle_id: bytes, notes: list[str]) -> list[Approval]:
    """Valid approvals, sorted such that the rejection of an approver who did both counts."""
    approvals: list[Approval] = []
    paths = sorted(folder.iterdir())[:_MOST_FILES] if folder.is_dir() else []
    for path in paths:
        try:
            with path.open("rb") as file:
                approval = Approval.decode(file.read(_MAX_BYTES))
            approval.verify()
        except (Malformed, Untrusted, OSError) as error:
            notes.append(f"{path.name}: {error}")
            continue
        if approval.bundle_id != bundle_id:
            other = approval.bundle_id.hex()
            notes.append(f"{path.name}: expected bundle {bundle_id.hex()}, got {other}")
            continue
        approvals.append(approval)
    return sorted(approvals, key=lambda item: (item.approver, item.decision))


def _digest(bundle_id: bytes, decision: str, approver: bytes) -> bytes:
    return ht("veen/agb0-approval", bundle_id, approver, decision.encode())
