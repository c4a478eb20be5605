"""Wallet ledger: balances by account and currency from paid operations (operation profiles, 2.3).

Every transfer counts, whatever the balance: a refused transfer changes what later ones may do, and
that cannot be merged. What can be merged is the lowest balance of each account and its stream_seq.
Up to the first overdraft this ledger equals one that refuses overdrafts.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Any

from veen.digest import h
from veen.errors import Malformed
from veen.overlay.overlay import Event, Folded, Overlay, merged, verify_order
from veen.wire.body import AnyItem, EventBody, Integer
from veen.wire.objects import WireArray, WireMap
from veen.wire.schema import Bytes32, Version

SCHEMA = h(b"veen/schema:paid.operation.v1")
DEFAULT_UNIT = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PaidOperation(EventBody):
    operation_type: str
    operation_args: AnyItem
    payer_account: Bytes32
    payee_account: Bytes32
    amount: int
    currency_code: str | None = None
    operation_reference: Bytes32 | None = None
    parent_operation_id: Bytes32 | None = None
    ttl_seconds: int | None = None
    metadata: AnyItem | None = None

    def rule(self) -> None:
        if self.currency_code == DEFAULT_UNIT:
            raise Malformed("expected a currency, got an empty name; leave the field out instead")


@dataclass(frozen=True, slots=True, kw_only=True)
class Account(WireArray):
    """A balance, and its minimum below zero with its stream_seq; both 0 if there is none."""

    account: Bytes32
    currency: str
    balance: Integer
    lowest: Integer
    lowest_at: int

    def rule(self) -> None:
        if self.lowest > min(0, self.balance) or (self.lowest < 0) != (self.lowest_at > 0):
            raise Malformed(
                f"account: balance {self.balance} does not fit lowest {self.lowest} at "
                f"{self.lowest_at}"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Accounts(WireMap):
    ver: Version = 1
    operations: int = 0
    accounts: tuple[Account, ...] = ()

    def rule(self) -> None:
        verify_order(map(_key, self.accounts))


class OverlayLedger(Overlay[Accounts]):
    name = "wallet.ledger"
    schemas = frozenset({SCHEMA})
    kind = Accounts

    def read(self, event: Event) -> Accounts:
        paid = PaidOperation.decode(event.body)
        currency = paid.currency_code or DEFAULT_UNIT
        deltas = dict.fromkeys((paid.payer_account, paid.payee_account), 0)
        deltas[paid.payer_account] -= paid.amount
        deltas[paid.payee_account] += paid.amount
        rows = (_moved(name, currency, deltas[name], event.stream_seq) for name in sorted(deltas))
        return Accounts(operations=1, accounts=tuple(rows))

    def join(self, left: Accounts, right: Accounts) -> Accounts:
        return Accounts(
            operations=left.operations + right.operations,
            accounts=merged(left.accounts, right.accounts, _key, _concatenated),
        )

    def part(self, state: Accounts, state_id: bytes) -> Accounts:
        """The account of that name, in every currency; operations are not counted by account."""
        return Accounts(accounts=tuple(a for a in state.accounts if a.account == state_id))

    def document(self, state: Accounts) -> dict[str, Any]:
        accounts: dict[str, dict[str, Any]] = {}
        for row in state.accounts:
            accounts.setdefault(row.account.hex(), {})[row.currency] = _account_document(row)
        return {"operations": state.operations, "accounts": accounts}


def overdrawn(exempt: AbstractSet[bytes]) -> Callable[[Folded[Accounts]], bool]:
    """The condition that an account, other than the exempt, has ever been below zero."""

    def holds(folded: Folded[Accounts]) -> bool:
        return any(row.lowest < 0 and row.account not in exempt for row in folded.state.accounts)

    return holds


def _key(row: Account) -> tuple[bytes, str]:
    return row.account, row.currency


def _moved(account: bytes, currency: str, delta: int, stream_seq: int) -> Account:
    return Account(
        account=account,
        currency=currency,
        balance=Integer(delta),
        lowest=Integer(min(0, delta)),
        lowest_at=stream_seq if delta < 0 else 0,
    )


def _concatenated(left: Account, right: Account) -> Account:
    dip = left.balance + right.lowest
    goes_lower = dip < left.lowest
    return Account(
        account=left.account,
        currency=left.currency,
        balance=Integer(left.balance + right.balance),
        lowest=Integer(dip) if goes_lower else left.lowest,
        lowest_at=right.lowest_at if goes_lower else left.lowest_at,
    )


def _account_document(row: Account) -> dict[str, int]:
    return {
        "balance": int(row.balance),
        "lowest": int(row.lowest),
        "lowest_at": row.lowest_at,
    }
