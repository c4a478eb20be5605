"""What mutants put in the place of a check."""

from __future__ import annotations

from typing import Any


class Everything:
    """Contains all there is, and is equal to it."""

    def get(self, _: object) -> Any:
        from veen.label import DEFAULT_PROFILE  # noqa: PLC0415

        return DEFAULT_PROFILE

    def __contains__(self, _: object) -> bool:
        return True

    def __eq__(self, _: object) -> bool:
        return True

    def __ne__(self, _: object) -> bool:
        return False

    __hash__ = None  # type: ignore[assignment]


def nothing(*_: Any, **__: Any) -> None:
    """In place of a check."""


def swap(owner: Any, name: str, value: object) -> None:
    """Put a value in the place of one that a module or a class has."""
    if not hasattr(owner, name):
        raise AttributeError(f"expected {owner!r} to have {name!r}, which is to be replaced")
    setattr(owner, name, value)
