"""Objects with values that their types forbid: what a test hands in to see it refused."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")


def changed(thing: T, /, **fields: Any) -> T:
    """A copy of a dataclass with these fields, whatever their names and types."""
    original: Any = thing
    result: T = dataclasses.replace(original, **fields)
    return result


def built(cls: Callable[..., T], /, **fields: Any) -> T:
    """An object with these fields, whatever their types."""
    return cls(**fields)
