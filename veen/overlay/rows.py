"""Rows of a state: sorted by their keys, each key once, so that a state has one encoding."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import pairwise
from typing import Any, TypeVar

from veen.errors import Malformed

R = TypeVar("R")


def merged(
    left: tuple[R, ...],
    right: tuple[R, ...],
    key: Callable[[R], Any],
    both: Callable[[R, R], R],
) -> tuple[R, ...]:
    """The rows of both sides by key; ``both`` makes one row of two under the same key."""
    if not left or not right:
        return left or right
    rows = {key(row): row for row in left}
    for row in right:
        at = key(row)
        rows[at] = both(rows[at], row) if at in rows else row
    return tuple(rows[at] for at in sorted(rows))


def refuse_disorder(keys: Iterable[Any]) -> None:
    if any(left >= right for left, right in pairwise(keys)):
        raise Malformed("rows out of order or doubled")
