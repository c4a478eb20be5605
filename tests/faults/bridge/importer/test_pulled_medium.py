"""A medium that is pulled while it is only looked at, before or between its bytes (I1)."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bridge.importer.run import ImportRequest, run_import
from support.long_form import LONG

LOOKS = ("scandir", "stat", "fstat")


class Pulled:
    """A call of the system that fails from the n-th time on that it is about the medium; 0 is
    never.
    """

    def __init__(self, name: str, medium: Path, at: int) -> None:
        self.count = 0
        self._call: Callable[..., Any] = getattr(os, name)
        self._medium, self._at = medium, at

    def __call__(self, what: Any, *args: Any, **more: Any) -> Any:
        if self._is_of_medium(what, more.get("dir_fd")):
            self.count += 1
            if self._at and self.count >= self._at:
                raise OSError(errno.EIO, "Input/output error")
        return self._call(what, *args, **more)

    def _is_of_medium(self, what: Any, folder: int | None) -> bool:
        fd = folder if folder is not None else what
        path = Path(f"/proc/self/fd/{fd}").readlink() if isinstance(fd, int) else Path(fd)
        return path.is_relative_to(self._medium) and path != self._medium


def _states(zone: Any, medium: Path) -> list[str]:
    """Of a run in which nothing may go in, and nobody else looks at the medium."""
    order = ImportRequest(operator=zone.name, media=(medium,), only=("none",))
    return [
        outcome.state.value for outcome in run_import(zone.settings, order, zone.around()).outcomes
    ]


@pytest.mark.parametrize("name", LOOKS)
def test_i01_a_medium_that_is_pulled_while_it_is_looked_at_is_incomplete_and_audited(
    import_zone: Any, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    medium = import_zone.medium(1, 3)
    whole = Pulled(name, medium, 0)
    with monkeypatch.context() as patched:
        patched.setattr(os, name, whole)
        assert _states(import_zone, medium) == ["blocked"]
    tries = range(1, whole.count + 1, 1 if LONG else max(1, whole.count // 4))
    assert tries
    for at in tries:
        with monkeypatch.context() as patched:
            patched.setattr(os, name, Pulled(name, medium, at))
            states = _states(import_zone, medium)
        # What is only measured before it is copied may fail: it is copied, or not, afterwards.
        assert states in (["incomplete"], ["blocked"]), at
        assert import_zone.files("inbox") == []
    assert import_zone.kinds().count("import.failed") >= len(tries) // 2
    assert import_zone.states(medium) == ["imported", "duplicate"]
    import_zone.check([1, 2, 3])
