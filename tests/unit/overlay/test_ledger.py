"""The ledger of paid operations, and what it says to a domain that forbids overdrafts."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import pytest

from support.overlay import overlay_histories
from veen.errors import Malformed
from veen.overlay.fold import Fold, SeqRun
from veen.overlay.ledger import Accounts, OverlayLedger, overdrawn
from veen.overlay.overlay import Event, fold_events

BANK, ANN, BOB = bytes([1]) * 32, bytes([2]) * 32, bytes([3]) * 32
Pays = Callable[..., Event]


@pytest.fixture
def pays(an_event: Callable[..., Event]) -> Pays:
    def build(at: int, payer: bytes, payee: bytes, amount: int, **more: Any) -> Event:
        body = {
            "operation_type": "pay", "operation_args": None, "payer_account": payer,
            "payee_account": payee, "amount": amount, **more,
        }  # fmt: skip
        return an_event(overlay_histories.PAID, body, stream_seq=at)

    return build


def detail(*events: Event) -> dict[str, Any]:
    document = OverlayLedger().document(fold_events(OverlayLedger(), events).state)
    result: dict[str, Any] = document["accounts"]
    return result


def row(balance: int, lowest: int = 0, lowest_at: int = 0) -> dict[str, int]:
    return {"balance": balance, "lowest": lowest, "lowest_at": lowest_at}


def test_a_transfer_debits_one_account_and_credits_the_other(pays: Pays) -> None:
    result = detail(pays(1, BANK, ANN, 10), pays(2, ANN, BOB, 4))
    assert result == {
        BANK.hex(): {"": row(-10, -10, 1)}, ANN.hex(): {"": row(6)}, BOB.hex(): {"": row(4)},
    }  # fmt: skip


def test_currencies_do_not_meet_and_an_absent_one_is_the_default_unit(pays: Pays) -> None:
    result = detail(pays(1, BANK, ANN, 10, currency_code="JPY"), pays(2, ANN, BOB, 4))
    assert result[ANN.hex()] == {"": row(-4, -4, 2), "JPY": row(10)}


def test_null_is_an_absent_currency(pays: Pays) -> None:
    assert detail(pays(1, BANK, ANN, 1, currency_code=None)) == detail(pays(1, BANK, ANN, 1))


def test_a_transfer_to_oneself_moves_nothing_at_any_balance(pays: Pays) -> None:
    assert detail(pays(1, ANN, ANN, 10)) == {ANN.hex(): {"": row(0)}}


def test_the_lowest_point_is_kept_with_the_place_that_first_reached_it(pays: Pays) -> None:
    events = (
        pays(1, ANN, BOB, 5),
        pays(2, BOB, ANN, 9),
        pays(3, ANN, BOB, 9),
        pays(4, BOB, ANN, 1),
    )
    assert detail(*events)[ANN.hex()] == {"": row(-4, -5, 1)}
    assert detail(*events[1:])[ANN.hex()] == {"": row(1)}


def test_money_is_neither_made_nor_lost(
    a_history: Callable[..., list[Any]], new_fold_log: Callable[..., Any]
) -> None:
    for seed in range(20):
        folded = fold_events(
            OverlayLedger(), new_fold_log(a_history(seed, 80, OverlayLedger.name)).all
        )
        assert folded.state.operations > 0
        assert sum(account.balance for account in folded.state.accounts) == 0


def first_refused(messages: list[Any], exempt: set[bytes], schema: bytes) -> int | None:
    """Where a wallet that forbids negative balances refuses its first operation."""
    balances: dict[tuple[bytes, str], int] = {}
    for message in messages:
        if message.schema != schema or message.says is None:
            continue
        payer, payee = message.says["payer_account"], message.says["payee_account"]
        unit, amount = message.says.get("currency_code") or "", message.says["amount"]
        left = balances.get((payer, unit), 0) - amount
        if payer != payee and left < 0 and payer not in exempt:
            return int(message.stream_seq)
        if payer != payee:
            balances[payer, unit] = left
            balances[payee, unit] = balances.get((payee, unit), 0) + amount
    return None


def test_the_first_overdraft_is_where_a_refusing_wallet_first_refuses(
    a_history: Callable[..., list[Any]],
    new_fold_log: Callable[..., Any],
    label: bytes,
) -> None:
    result = set()
    for seed in range(100):
        chance = Random(seed)
        messages = a_history(seed, chance.randrange(1, 120), OverlayLedger.name)
        exempt = {overlay_histories.named("account", n) for n in range(4) if chance.random() < 0.8}
        due = first_refused(messages, exempt, overlay_histories.PAID)
        fold = Fold(OverlayLedger(), label, new_fold_log(messages), chance.randrange(1, 30))
        condition = overdrawn(exempt)
        assert condition(fold.over(SeqRun(1, len(messages)))) == (due is not None)
        for _ in ("cold or warm", "warm"):
            assert fold.first(condition, len(messages)) == due
        result.add(due)
    assert None in result
    assert len(result) > 10


def test_the_first_overdraft_is_found_by_few_looks(
    pays: Pays, new_fold_log: Callable[..., Any], label: bytes
) -> None:
    events = [pays(seq, BANK, ANN, 1) for seq in range(1, 513)]
    events[299] = pays(300, BOB, ANN, 1)
    log = new_fold_log(events)
    fold = Fold(OverlayLedger(), label, log, 4)
    fold.over(SeqRun(1, 512))
    log.asked.clear()
    assert fold.first(overdrawn({BANK}), 512) == 300
    assert log.asked["summary"] <= 1 + 7
    assert log.asked["events"] == 4


@pytest.mark.parametrize(
    "rows",
    [
        [[ANN, "", b"\x05", b"\x01", 1]],
        [[ANN, "", b"\xfe", b"\xff", 1]],
        [[ANN, "", b"\x05", b"\xff", 0]],
        [[ANN, "", b"\x05", b"\x00", 4]],
        [[ANN, "b", b"\x05", b"\x00", 0], [ANN, "a", b"\x05", b"\x00", 0]],
        [[ANN, "", 5, b"\x00", 0]],
    ],
)
def test_accounts_that_no_fold_gives_are_refused(rows: Any) -> None:
    with pytest.raises(Malformed):
        Accounts.decode(overlay_histories.cbor({1: 1, 2: 1, 3: rows}))
