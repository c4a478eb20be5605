"""Frozen dataclasses that are cheap to hand to another process: their values, and nothing else."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from functools import cache
from operator import attrgetter
from typing import Any


class Portable:
    """What a dataclass with slots brings for pickling looks its fields up anew for each object."""

    __slots__ = ()

    def __reduce__(self) -> tuple[Any, ...]:
        kind: Any = type(self)
        return _made, (kind, *_values(kind)(self))


def _made(kind: Any, *values: Any) -> Any:
    found = object.__new__(kind)
    for put, value in zip(_puts(kind), values, strict=True):
        put(found, value)
    return found


@cache
def _values(kind: Any) -> Callable[[Any], tuple[Any, ...]]:
    names = [one.name for one in fields(kind)]
    if len(names) > 1:
        return attrgetter(*names)
    return lambda found: tuple(getattr(found, name) for name in names)


@cache
def _puts(kind: Any) -> tuple[Callable[[Any, Any], None], ...]:
    """The slots' own setters: a frozen object is filled once, while it is made."""
    return tuple(getattr(kind, one.name).__set__ for one in fields(kind))
