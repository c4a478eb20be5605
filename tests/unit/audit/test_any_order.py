"""What an audit finds depends neither on how a log is cut nor on the order it is looked at."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from support.audit.audit_files import laid_out
from support.audit.audit_history import HUB, STREAMS, a_history, a_key
from support.audit.audit_pool import audited, in_any_order
from support.long_form import LONG
from veen.audit.engine import in_order
from veen.audit.report import AuditReport
from veen.msg import Msg
from veen.receipt import Receipt

Edit = Callable[[Msg, random.Random], Msg]
STRANGER = bytes(range(32))

# What a hub that cheats might have accepted, signed by the client all the same.
SENT: list[Edit] = [
    lambda msg, chance: replace(msg, client_seq=msg.client_seq + chance.randint(1, 3)),
    lambda msg, chance: replace(msg, client_seq=max(msg.client_seq - chance.randint(1, 3), 0)),
    lambda msg, chance: replace(msg, prev_ack=max(msg.prev_ack - chance.randint(1, 9), 0)),
    lambda msg, _: replace(msg, prev_ack=msg.prev_ack + 1),
    lambda msg, _: replace(msg, auth_ref=STRANGER),
    lambda msg, _: replace(msg, profile_id=STRANGER),
]


def a_cheat(chance: random.Random) -> Any:
    """A history with faults of every kind in its entries."""
    history = a_history(chance, 30)
    clients = [a_key(f"client {number}") for number in range(3)]
    tokens = [history.authorize(client) for client in clients]
    for _ in range(60):
        which, stream = chance.randrange(3), chance.choice(STREAMS)
        msg = history.message(clients[which], stream, tokens[which])
        if chance.random() < 0.3:
            msg = chance.choice(SENT)(msg, chance)
        history.take(msg.signed(clients[chance.randrange(3) if chance.random() < 0.1 else which]))
        history.now += chance.choice([0, 1, 1, 2, -3])
    for entries in history.entries.values():
        # The root of the last entry stays right: by it those before are known to be wrong.
        for entry in entries[:-1]:
            if chance.random() < 0.1:
                entry.receipt = chance.choice([wrong_root, unsigned])(entry.receipt, HUB)
    return history


def wrong_root(receipt: Receipt, hub: Any) -> Receipt:
    return replace(receipt, mmr_root=STRANGER).signed(hub)


def unsigned(receipt: Receipt, _hub: Any) -> Receipt:
    return replace(receipt, hub_sig=bytes(64))


def detail(report: AuditReport) -> set[tuple[str, int | None, str, str]]:
    """The faults of entries, without the file and the offset that depend on the cut."""
    return {
        (fault.file.split("-")[1], fault.stream_seq, fault.code, fault.what)
        for fault in report.faults
        if fault.file.startswith("log/chunk-") and not fault.file.endswith(".summary")
    }


@pytest.mark.parametrize("seed", range(6))
def test_a_sound_history_has_no_fault_however_it_is_cut(seed: int) -> None:
    chance = random.Random(seed)
    history = a_history(chance, 120)
    heads = set()
    for longest in (1, 2, 5, 40, 500):
        files = laid_out(history, partial(chance.randint, 1, longest))
        report = audited(files, in_any_order(files, chance))
        assert report.faults == ()
        assert report.entries == 123
        heads.add(tuple(report.heads.items()))
    assert len(heads) == 1


@pytest.mark.parametrize("seed", range(8))
def test_the_same_faults_are_found_however_it_is_cut(seed: int) -> None:
    chance = random.Random(seed)
    history = a_cheat(chance)
    whole = laid_out(history, lambda: 10**6)
    due = detail(audited(whole))
    assert len({code for _, _, code, _ in due}) >= 6
    for longest in (1, 2, 4, 9, 30):
        files = laid_out(history, partial(chance.randint, 1, longest))
        assert detail(audited(files, in_any_order(files, chance))) == due


@pytest.mark.parametrize("seed", range(1_000 if LONG else 40))
def test_any_order_gives_the_report_of_a_walk(seed: int) -> None:
    """Files are flipped, cut, dropped and swapped at will; the walk is the reference."""
    chance = random.Random(seed)
    files = laid_out(a_cheat(chance), lambda: chance.randint(1, 9))
    for _ in range(chance.randint(1, 6)):
        damage(files, chance)
    walked = audited(files, in_order(files.get))
    assert audited(files, in_any_order(files, chance)).to_json() == walked.to_json()
    assert audited(files, in_any_order(files, chance)).to_json() == walked.to_json()


def damage(files: dict[str, bytes], chance: random.Random) -> None:
    logged = sorted(name for name in files if name.startswith("log/") and files[name])
    name, other = chance.sample(logged, 2)
    raw, at = files[name], chance.randrange(len(files[name]))
    kind = chance.randrange(5)
    if kind == 0:
        del files[name]
    elif kind == 1:
        files[name] = raw[:at]
    elif kind == 2:
        files[name], files[other] = files[other], files[name]
    elif kind == 3:
        files[name] = raw + raw[at:]
    else:
        files[name] = raw[:at] + bytes([raw[at] ^ 1 << chance.randrange(8)]) + raw[at + 1 :]
