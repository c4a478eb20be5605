"""What was found for many questions, handed out question by question without being held."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

T = TypeVar("T")


class Shares(Generic[T]):
    """Items in the order of their questions; each question is asked for once, in that order."""

    def __init__(self, items: Iterator[T], question_of: Callable[[T], int]) -> None:
        self._items = items
        self._question_of = question_of
        self._next = next(items, None)

    def of(self, question: int) -> Iterator[T]:
        while (one := self._next) is not None and self._question_of(one) == question:
            yield one
            self._next = next(self._items, None)
