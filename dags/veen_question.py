"""The question that people are asked about an import: everything that is approved, as a table.

What does not fit is left out whole and asked about by the next run; what is approved is exactly
what was shown. Airflow renders the text as GitHub Flavored Markdown and drops HTML.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

from veen_run_files import read_run_file

MOST_ROWS: Final = 100
MOST_CHARS: Final = 20_000
"""Of the rows of one question; at least one row is always shown."""

FILE: Final = "question"
_HEAD: Final = (
    "| | Bundle | Stream | Events | Count | Age |\n"
    "|---:|:---|:---|:---|---:|---:|\n"
)  # fmt: skip
_UNSAFE: Final = re.compile(r"[^A-Za-z0-9 ._/:@+=,;()#'-]")
_DAY_SEC: Final = 86_400


@dataclass(frozen=True, slots=True)
class Question:
    """``bundles`` are the ids in the table, in its order; ``later`` is how many did not fit."""

    bundles: tuple[str, ...]
    body: str
    later: int


def compose(
    wanted: Sequence[Mapping[str, Any]], obstructed: Sequence[Mapping[str, Any]], refused: int
) -> Question:
    """``wanted`` are rows of ``veen bridge verify`` that may go in; ``obstructed`` are valid and
    cannot go in now; ``refused`` is how many carriers were refused.
    """
    rows, size = list[str](), 0
    for number, one in enumerate(wanted, 1):
        row = _row(number, one)
        if rows and (len(rows) == MOST_ROWS or size + len(row) > MOST_CHARS):
            break
        rows.append(row)
        size += len(row)
    shown = wanted[: len(rows)]
    later = len(wanted) - len(rows)
    body = f"{_lead(shown, later)}\n\n{_HEAD}{''.join(rows)}{_rest(obstructed, refused)}"
    return Question(tuple(str(one["bundle_id"]) for one in shown), body, later)


def asked(context: Mapping[str, Any]) -> Question:
    """The question of this run, as the task ``verify`` wrote it down."""
    found = read_run_file(context, FILE)
    if found is None:
        return Question((), "", 0)
    return Question(tuple(found["bundles"]), found["body"], found["later"])


def document(question: Question) -> dict[str, Any]:
    return asdict(question)


def plain(text: object) -> str:
    """Without anything that Markdown would read as its own: names come from a medium."""
    return _UNSAFE.sub(lambda one: f"(U+{ord(one[0]):04X})", str(text))


def _lead(shown: Sequence[Mapping[str, Any]], later: int) -> str:
    events = sum(_count(one) for one in shown)
    lead = f"**{len(shown)} bundles, {events} events.** Your answer is about these and no others."
    if later:
        lead += f" {later} more bundles do not fit here: the next run asks about them."
    return lead


def _row(number: int, one: Mapping[str, Any]) -> str:
    age = one.get("age_sec")
    told = "" if age is None else f"{age // _DAY_SEC} d"
    if one.get("warning"):
        told = f"**{told}**: {plain(one['warning'])}"
    span = f"{one['from_seq']} to {one['to_seq']}"
    return (
        f"| {number} | `{one['bundle_id']}` | {plain(one['stream'])} | {span} | {_count(one)} "
        f"| {told} |\n"
    )


def _rest(obstructed: Sequence[Mapping[str, Any]], refused: int) -> str:
    """Not part of the answer, therefore last and short."""
    found = ""
    if obstructed:
        found += f"\nNot asked about, {len(obstructed)} valid bundles that cannot go in now:\n\n"
        for one in obstructed[:_MOST_OBSTRUCTED]:
            found += f"- `{one['bundle_id'][:16]}` {plain(one['obstacle'])}\n"
    if refused:
        found += f"\nRefused carriers: {refused}. The log of the task `verify` names them.\n"
    return found


_MOST_OBSTRUCTED: Final = 10


def _count(one: Mapping[str, Any]) -> int:
    return int(one["to_seq"]) - int(one["from_seq"]) + 1
