"""Files of a log whose first read of every name fails, on whatever executor it happens."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from veen.digest import h
from veen.objects.port import StoreUnavailable


@dataclass(frozen=True)
class FailingFiles:
    """``marks`` is a folder where every name that has failed leaves a mark."""

    files: Any
    marks: Path

    def read(self, name: str) -> bytes | None:
        if name.endswith(".log"):
            fail_once(self.marks, name)
        result: bytes | None = self.files.read(name)
        return result


def fail_once(marks: Path, name: str) -> None:
    marks.mkdir(exist_ok=True)
    try:
        (marks / h(name.encode()).hex()).touch(exist_ok=False)
    except FileExistsError:
        return
    raise StoreUnavailable(f"{name}: the first time fails")
