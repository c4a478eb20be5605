"""Data directories made by the hub's own committer, small enough to be broken in every way."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import pytest

from hub.storage.index import Index
from support.hub.driven_hub import Bench, fill
from veen.system import durable


@pytest.fixture(scope="session")
def golden(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished directory; tests take copies of it."""
    bench = Bench(tmp_path_factory.mktemp("golden") / "hub")
    fill(bench)
    bench.stop()
    return bench.root


@pytest.fixture
def copy(golden: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(golden, tmp_path / "hub"))


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path / "hub")


class Crash(BaseException):
    """The process ends here."""


DURABLE_STEPS: tuple[tuple[Any, str], ...] = (
    *((durable, name) for name in ("write", "append", "cut", "rename")),
    (Index, "transaction"),
)


@pytest.fixture
def crash_at(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], AbstractContextManager[None]]:
    """Within the block, the nth durable step from its start and all after it do not happen."""

    @contextmanager
    def crashing(step: int) -> Iterator[None]:
        steps = iter(range(1, 1 << 30))
        for owner, name in DURABLE_STEPS:
            real = getattr(owner, name)

            def counted(*args: Any, real: Any = real) -> Any:
                if next(steps) >= step:
                    raise Crash
                return real(*args)

            monkeypatch.setattr(owner, name, counted)
        with pytest.raises(Crash):
            yield
        monkeypatch.undo()

    return crashing
