"""Approvals: signatures of people over a bundle, n of m of whom must let it in (AGB0 4.5)."""

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
    """One person decides about a bundle once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Approval(WireMap):
    """``decision`` is ``approve`` or ``reject``; the approver's key covers all of it."""

    ver: Version = 1
    bundle_id: Bytes32
    decision: str
    approver: Bytes32
    signature: Bytes64

    def rule(self) -> None:
        if self.decision not in (APPROVE, REJECT):
            raise Malformed(f"the decision {self.decision!r} is neither {APPROVE} nor {REJECT}")

    @classmethod
    def of(cls, key: SigningKey, bundle_id: bytes, decision: str) -> Approval:
        signature = key.sign(_digest(bundle_id, decision, key.public))
        return cls(bundle_id=bundle_id, decision=decision, approver=key.public, signature=signature)

    def verify(self) -> None:
        digest = _digest(self.bundle_id, self.decision, self.approver)
        if not signature_is_valid(self.approver, self.signature, digest):
            raise Untrusted(f"the approval is not signed by {self.approver.hex()}")


@dataclass(frozen=True, slots=True)
class ApprovalState:
    """How a bundle stands with those who may approve it."""

    needed: int
    approved: tuple[bytes, ...]
    rejected: tuple[bytes, ...]
    notes: tuple[str, ...] = ()

    @property
    def is_met(self) -> bool:
        return not self.rejected and len(self.approved) >= self.needed

    def describe(self) -> str:
        if self.rejected:
            return f"rejected by {', '.join(item.hex() for item in self.rejected)}"
        return f"{len(self.approved)} of {self.needed} approvals are there"


def decide(folder: Path, approval: Approval) -> Path:
    """Keep a decision; a second one of the same person about the same bundle is refused."""
    approval.verify()
    durable.make_directory(folder / approval.bundle_id.hex())
    durable.sync_directory(folder)
    path = folder / approval.bundle_id.hex() / f"{approval.approver.hex()}.cbor"
    if path.exists():
        raise AlreadyDecided(
            f"{approval.approver.hex()} has decided about bundle {approval.bundle_id.hex()} "
            "already; another person must"
        )
    durable.write(path, approval.encode())
    return path


def standing(
    folder: Path, bundle_id: bytes, stream: str, rules: Sequence[ApprovalRule]
) -> ApprovalState:
    """Every rule whose prefix the stream has must be met; the strictest speaks for all."""
    mine = [rule for rule in rules if stream.startswith(rule.prefix)]
    notes: list[str] = []
    decided = {
        item.approver: item.decision for item in _read(folder / bundle_id.hex(), bundle_id, notes)
    }
    approval_states = [_of_rule(item, decided, notes) for item in mine]
    unmet = [approval_state for approval_state in approval_states if not approval_state.is_met]
    return (unmet or approval_states or [ApprovalState(0, (), ())])[0]


def _of_rule(rule: ApprovalRule, decided: dict[bytes, str], notes: Sequence[str]) -> ApprovalState:
    listed = sorted(set(rule.approvers) & set(decided))
    return ApprovalState(
        rule.needed,
        tuple(item for item in listed if decided[item] == APPROVE),
        tuple(item for item in listed if decided[item] == REJECT),
        tuple(notes),
    )


def _read(folder: Path, bundle_id: bytes, notes: list[str]) -> list[Approval]:
    """Those that hold. Of one person who said two things, the rejection counts."""
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
            notes.append(f"{path.name}: of another bundle")
            continue
        approvals.append(approval)
    return sorted(approvals, key=lambda item: (item.approver, item.decision))


def _digest(bundle_id: bytes, decision: str, approver: bytes) -> bytes:
    return ht("veen/agb0-approval", bundle_id, approver, decision.encode())
