"""Stores whose answers are lost, or late, the first time; executors import this by its name."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from support.spark.failing_files import fail_once
from veen.objects.port import Store, StoreUnavailable
from veen.objects.store import StoreRef

LOST = 3


class _Objects:
    """Puts what it is given, and says of some puts that they failed, of each key once."""

    def __init__(self, objects: Any, marks: Path) -> None:
        self._objects = objects
        self._marks = marks

    def put_file(self, key: str, source: Path) -> None:
        self._objects.put_file(key, source)
        if len(list(self._marks.glob("*"))) < LOST:
            fail_once(self._marks, key)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._objects, name)


class _SlowObjects(_Objects):
    """Whoever puts the first file of all is stuck until another has put the same one."""

    def put_file(self, key: str, source: Path) -> None:
        self._objects.put_file(key, source)
        name = key.rpartition("/")[2]
        tries = self._marks / name
        tries.mkdir(parents=True, exist_ok=True)
        (tries / str(os.getpid())).touch()
        if self._is_stuck(name):
            until = time.monotonic() + 60
            while len(list(tries.iterdir())) < 2 and time.monotonic() < until:
                time.sleep(0.05)

    def _is_stuck(self, name: str) -> bool:
        try:
            fail_once(self._marks / "first", "any")
        except StoreUnavailable:
            (self._marks / "stuck").write_text(name)
            return True
        return False


@dataclass(frozen=True)
class LosingStore(StoreRef):
    """Some puts are done, and their answers are lost."""

    marks: Path = Path()

    def to_put(self) -> Store:
        store = StoreRef(self.settings, self.keeps_conditions).to_put()
        objects: Any = _Objects(store.objects, self.marks)
        return Store(objects, store.heads, store.status)


@dataclass(frozen=True)
class SlowStore(StoreRef):
    """One task does not end before a second copy of it has done its work."""

    marks: Path = Path()

    def to_put(self) -> Store:
        store = StoreRef(self.settings, self.keeps_conditions).to_put()
        objects: Any = _SlowObjects(store.objects, self.marks)
        return Store(objects, store.heads, store.status)
