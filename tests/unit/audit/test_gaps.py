"""Gaps in the numbers of clients: those that lost entries cannot fill are told, no other is."""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

from support.audit.audit_files import forged, laid_out
from support.audit.audit_history import LIMITS, STREAMS, History, a_key
from support.audit.audit_pool import audited
from veen.audit.report import AuditReport
from veen.log import layout
from veen.log.chunk import read_entries
from veen.log.layout import ChunkName

Files = dict[str, bytes]
Change = Callable[[list[Any]], object]
NAMED = re.compile(r"before entries ([\d, ]+) client_seq")


class Script(NamedTuple):
    """A log of one stream, told by the clients of its entries; a capital letter skips a number."""

    files: Files
    label: bytes

    def edit(self, chunk: int, change: Change) -> None:
        """Change the entries of a chunk of eight, counted from 0."""
        name = layout.chunk(ChunkName(self.label, 8 * chunk + 1, 8 * chunk + 8))
        self.files[name] = forged(self.files[name], change)

    def drop(self, seq: int) -> None:
        self.edit((seq - 1) // 8, lambda entries: entries.pop((seq - 1) % 8))

    def detail(self) -> list[tuple[int | None, str]]:
        return [(fault.stream_seq, fault.code) for fault in self.audited().faults]

    def notes(self) -> list[str]:
        """What nobody can tell, from the place in the file on."""
        return [note.partition(": ")[2] for note in self.audited().notes if "client_seq" in note]

    def audited(self) -> AuditReport:
        result: AuditReport = audited(self.files)
        return result


@pytest.fixture
def script() -> Callable[[str], Script]:
    def build(letters: str) -> Script:
        history, stream = History(), STREAMS[0]
        label = history.label(stream)
        tokens = {item: history.authorize(a_key(item)) for item in set(letters.lower())}
        for letter in letters:
            client = a_key(letter.lower())
            if letter.isupper():
                history.sent[label, client.public] = history.sent.get((label, client.public), 0) + 1
            history.send(client, stream, tokens[letter.lower()])
        return Script(laid_out(history, lambda: 8), label)

    return build


def unless(entries: str, lost: str) -> str:
    return (
        f"before entries {entries} client_seq leaves gaps that are faults unless the lost entries "
        f"{lost} were these clients'"
    )


def test_a_gap_after_a_later_entry_of_the_client_is_reported(script: Any) -> None:
    """The lost entry comes before entry 4, and so it cannot be what is missing after it."""
    result = script("adcabcAb" + "abcabcabc")
    result.drop(2)
    assert result.detail() == [(3, "MISSING"), (7, "I9")]
    assert result.notes() == []


def test_a_gap_that_a_lost_entry_may_fill_is_named(script: Any) -> None:
    """The lost entry was of a client that says no more, but no one can know."""
    result = script("abcdbcAb" + "abcabcabc")
    result.drop(4)
    assert result.detail() == [(5, "MISSING")]
    assert result.notes() == [unless("7", "4")]


def test_a_lost_entry_fills_one_gap_alone(script: Any) -> None:
    result = script("abcabCAb" + "bcabcabca")
    result.drop(4)
    assert result.detail() == [(5, "MISSING"), (7, "I9")]
    assert result.notes() == [unless("6", "4")]


def test_a_gap_wider_than_what_was_lost_is_reported(script: Any) -> None:
    result = script("abcabcAb" + "bcabcabca")
    result.drop(4)
    assert result.detail() == [(5, "MISSING"), (7, "I9")]
    assert result.notes() == []


def test_a_loss_in_an_earlier_chunk_fills_no_gap_after_a_later_entry(script: Any) -> None:
    result = script("abcdabcb" + "bcAbcabca")
    result.drop(4)
    assert result.detail() == [(5, "MISSING"), (11, "I9")]
    assert result.notes() == []


def test_a_loss_in_an_earlier_chunk_may_fill_a_gap_over_it(script: Any) -> None:
    result = script("abcdbcbc" + "bcAbcabca")
    result.drop(4)
    assert result.detail() == [(5, "MISSING")]
    assert result.notes() == [unless("11", "4")]


def test_a_missing_chunk_fills_no_gap_after_it(script: Any) -> None:
    result = script("abcabcab" + "abcabcab" + "abcabAbC" + "abc")
    del result.files[layout.chunk(ChunkName(result.label, 9, 16))]
    assert result.detail() == [(9, "MISSING"), (22, "I9"), (24, "I9")]
    assert result.notes() == [unless("17, 18, 19", "9 to 16")]


def swap(entries: list[Any]) -> None:
    entries[3], entries[4] = entries[4], entries[3]


def test_an_entry_that_turns_up_fills_gaps_of_its_own_client_alone(script: Any) -> None:
    """Entry 4 comes after 5: it is known whose it is, so that of another is told."""
    result = script("abcdbcAbd" + "abcabcabc")
    result.edit(0, swap)
    assert result.detail() == [(5, "MISSING"), (4, "ORDER"), (7, "I9")]
    assert result.notes() == []


def test_an_entry_that_stands_twice_fills_no_gap(script: Any) -> None:
    result = script("abcdbcAb" + "abcabcabc")
    result.edit(0, lambda entries: entries.insert(4, entries[3]))
    assert result.detail() == [(4, "ORDER"), (7, "I9")]
    assert result.notes() == []


def test_a_bad_signature_of_an_entry_out_of_place_is_reported(script: Any) -> None:
    result = script("abcdbcab" + "abcabcabc")

    def change(entries: list[Any]) -> None:
        entries[3].msg = entries[3].msg.signed(a_key("stranger"))
        swap(entries)

    result.edit(0, change)
    assert result.detail() == [(5, "MISSING"), (4, "ORDER"), (4, "SIG")]


def shuffled(entries: list[Any], chance: random.Random) -> None:
    """Some entries are lost, some stand elsewhere, some twice."""
    for _ in range(chance.randint(0, 3)):
        at, to = chance.randrange(len(entries)), chance.randrange(len(entries))
        kind = chance.randrange(3)
        if kind == 0 and len(entries) > 2:
            entries.pop(at)
        elif kind == 1:
            entries.insert(to, entries.pop(at))
        else:
            entries.insert(to, entries[at])


@pytest.mark.parametrize("seed", range(60))
def test_no_gap_is_hidden_and_none_is_made_up(script: Any, seed: int) -> None:
    chance = random.Random(seed)
    letters = [chance.choice("abcd") for _ in range(36)]
    real = set(chance.sample(range(1, 37), chance.randint(0, 3)))
    result = script("".join(x.upper() if n in real else x for n, x in enumerate(letters, 1)))
    for chunk in range(4):
        result.edit(chunk, lambda entries: shuffled(entries, chance))
    report = result.audited()
    detail = {fault.stream_seq for fault in report.faults if fault.code == "I9"}
    notes = [note for note in report.notes if "client_seq" in note]
    named = {int(part) for note in notes for part in NAMED.findall(note)[0].split(", ")}
    assert real & walked(result) <= detail | named
    assert len(detail) <= len(real)


def walked(script: Script) -> set[int]:
    """The entries that stand in their place: none before them comes later."""
    seen = [0]
    for name in sorted(file for file in script.files if layout.parse_chunk(file)):
        if script.label.hex() in name:
            entries = read_entries(script.files[name], LIMITS)
            seen += [header.stream_seq for _, header, _ in entries]
    return {seq for at, seq in enumerate(seen) if at and seq > max(seen[:at])}
