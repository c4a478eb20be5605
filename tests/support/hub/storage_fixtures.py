"""Data directories made by the hub's own committer, small enough to be broken in every way."""

from __future__ import annotations

import itertools
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from support.hub.driven_hub import Bench


@pytest.fixture(scope="session")
def golden_hub(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished directory; tests take copies of it."""
    from support.hub.driven_hub import Bench, fill

    bench = Bench(tmp_path_factory.mktemp("golden") / "hub")
    fill(bench)
    bench.stop()
    return bench.root


@pytest.fixture
def hub_copy(golden_hub: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(golden_hub, tmp_path / "hub"))


@pytest.fixture
def hub_bench(tmp_path: Path) -> Bench:
    from support.hub.driven_hub import Bench

    return Bench(tmp_path / "hub")


class Crash(BaseException):
    """The process ends here."""


OPERATIONS = ("pwrite", "ftruncate", "rename")
"""The calls of the system that change a file or a name."""


def is_lock(place: int | Path) -> bool:
    """Whether this is the lock file; the system releases the lock of a process that ended."""
    path = Path(f"/proc/self/fd/{place}").readlink() if isinstance(place, int) else Path(place)
    return path.name == "lock"


@pytest.fixture
def crash_at(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], AbstractContextManager[None]]:
    """End the block at a step, which it has to reach.

    Step 1 is just before the first operation on a file, step 2 just after it, step 3 before the
    second: what SQLite commits between two operations has happened in the later of two steps.
    """

    @contextmanager
    def crashing(step: int) -> Iterator[None]:
        steps = itertools.count(1)

        def pass_step() -> None:
            if next(steps) >= step:
                raise Crash

        for name in OPERATIONS:
            real = getattr(os, name)

            def operation(place: int | Path, *args: Any, real: Any = real) -> Any:
                if is_lock(place):
                    return real(place, *args)
                pass_step()
                result = real(place, *args)
                pass_step()
                return result

            monkeypatch.setattr(os, name, operation)
        with pytest.raises(Crash):
            yield
        monkeypatch.undo()

    return crashing
