"""The steps of a self-test: named, run in order, and each its own success or failure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from veen.errors import VeenError

W = TypeVar("W")


class Unexpected(VeenError):
    """What a step found is not what had to be there."""


@dataclass(frozen=True, slots=True)
class Step(Generic[W]):
    name: str
    run: Callable[[W], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """``detail`` says what was expected and what came, where that was not the same."""

    suite: str
    name: str
    ok: bool
    seconds: float
    detail: str | None

    def to_json(self) -> dict[str, Any]:
        return {
            "suite": self.suite,
            "name": self.name,
            "ok": self.ok,
            "seconds": round(self.seconds, 3),
            "detail": self.detail,
        }


def run(
    suite: str, steps: Iterable[Step[W]], begin: Callable[[str], W], clock: Callable[[], float]
) -> Iterator[Result]:
    """Run steps one after the other; one that fails keeps none of the others from running.

    ``begin`` gives a step what it works with, and its failure is the step's.
    """
    for step in steps:
        start = clock()
        detail = None
        try:
            step.run(begin(step.name))
        except Exception as error:  # noqa: BLE001 - whatever goes wrong within it, the step failed
            detail = _told(error)
        yield Result(
            suite=suite, name=step.name, ok=detail is None, seconds=clock() - start, detail=detail
        )


def _told(error: Exception) -> str:
    text = "; ".join([str(error), *getattr(error, "__notes__", [])])
    return text if isinstance(error, Unexpected) else f"{type(error).__name__}: {text}"


def expect(what: str, found: object, expected: object) -> None:
    if found != expected:
        raise Unexpected(f"{what}: expected {_short(expected)}, found {_short(found)}")


def expect_that(holds: bool, what: str) -> None:
    if not holds:
        raise Unexpected(f"expected that {what}")


def expect_raises(
    what: str, kind: type[Exception], call: Callable[..., object], *given: Any, **named: Any
) -> Exception:
    """The error of a call, which has to fail in just this way."""
    try:
        found = call(*given, **named)
    except kind as error:
        return error
    except Exception as error:
        raise Unexpected(f"{what}: expected {kind.__name__}, found {_told(error)}") from error
    raise Unexpected(f"{what}: expected {kind.__name__}, but it was taken: {_short(found)}")


def _short(value: object) -> str:
    text = value.hex() if isinstance(value, bytes) else repr(value)
    return text if len(text) <= 160 else f"{text[:160]}…"
