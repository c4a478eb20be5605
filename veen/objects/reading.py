"""A store for whoever only reads: it needs no right to write, and cannot be made to write."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Never

from veen.objects.port import Head, HeadStore, ObjectStore, StoreRefused


class ReadObjects:
    def __init__(self, objects: ObjectStore) -> None:
        self._objects = objects

    def put(self, key: str, body: bytes) -> None:  # noqa: ARG002 - the port's words
        _refuse(key)

    def put_file(self, key: str, source: Path) -> None:  # noqa: ARG002 - the port's words
        _refuse(key)

    def get(self, key: str, *, expect: bytes | None = None) -> bytes:
        return self._objects.get(key, expect=expect)

    def get_file(self, key: str, to: Path, *, expect: bytes | None = None) -> None:
        self._objects.get_file(key, to, expect=expect)

    def get_range(self, key: str, start: int, size: int) -> bytes:
        return self._objects.get_range(key, start, size)

    def size(self, key: str) -> int:
        return self._objects.size(key)

    def keys(self, prefix: str = "", *, start_after: str = "") -> Iterator[str]:
        return self._objects.keys(prefix, start_after=start_after)


class ReadHeads:
    def __init__(self, heads: HeadStore) -> None:
        self._heads = heads

    def read(self, name: str) -> Head:
        return self._heads.read(name)

    def swap(self, old: Head, value: bytes) -> Head:  # noqa: ARG002 - the port's words
        _refuse(old.name)


def _refuse(what: str) -> Never:
    raise StoreRefused(f"{what}: the store was opened to be read alone, and nothing was written")
