"""ObjectStore on an S3-compatible bucket: requests that are tried again until they are settled."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, TypeVar

from veen.digest import h
from veen.objects import body as bodies
from veen.objects import disk
from veen.objects.body import Body
from veen.objects.key import check_key, check_text, is_key
from veen.objects.port import (
    ObjectConflict,
    ObjectDamaged,
    ObjectMissing,
    StoreRefused,
    StoreUnavailable,
)
from veen.objects.retries import Retries, Transient
from veen.objects.s3 import ABSENT, Bucket, Condition, ConditionFailed, Garbled, OutOfRange

FOLDER: Final = "objects/"
T = TypeVar("T")


class S3Objects:
    def __init__(self, bucket: Bucket, retries: Retries, *, keeps_conditions: bool) -> None:
        self._bucket = bucket
        self._retries = retries
        self._keeps_conditions = keeps_conditions

    def put(self, key: str, body: bytes) -> None:
        self._put(key, bodies.of_bytes(body))

    def put_file(self, key: str, source: Path) -> None:
        self._put(key, bodies.of_file(source))

    def get(self, key: str, *, expect: bytes | None = None) -> bytes:
        def attempt() -> bytes:
            with self._bucket.opened(_place(key)) as download:
                return download.stream.read()

        data = self._read(key, attempt)
        bodies.verify_digest(key, h(data), expect)
        return data

    def get_file(self, key: str, to: Path, *, expect: bytes | None = None) -> None:
        def attempt() -> None:
            with (
                self._bucket.opened(_place(key)) as download,
                disk.replacing(to, to.parent) as target,
            ):
                shutil.copyfileobj(download.stream, target, bodies.PIECE)
                if expect is not None:
                    bodies.verify_digest(key, bodies.digest_of(target), expect)

        self._read(key, attempt)

    def get_range(self, key: str, start: int, size: int) -> bytes:
        if start < 0 or size < 0:
            raise ValueError(f"a range of {size} bytes from {start}")
        # HTTP has no empty range.
        place, at_least_one = _place(key), max(size, 1)
        try:
            data = self._retries.run(
                f"get {key}", lambda: self._bucket.range(place, start, at_least_one)
            )
        except OutOfRange:
            return b""
        return data[:size]

    def size(self, key: str) -> int:
        place = _place(key)
        return self._retries.run(f"size of {key}", lambda: self._bucket.size(place))

    def keys(self, prefix: str = "", *, start_after: str = "") -> Iterator[str]:
        check_text(prefix)
        check_text(start_after)
        last = FOLDER + start_after
        while page := self._page(FOLDER + prefix, last):
            for place in page:
                if place <= last:
                    raise StoreRefused(f"the store lists {place!r} after {last!r}")
                last = place
                if is_key(key := place.removeprefix(FOLDER)):
                    yield key

    def _page(self, prefix: str, last: str) -> list[str]:
        return self._retries.run(f"list {prefix}", lambda: self._bucket.page(prefix, last))

    def _put(self, key: str, body: Body) -> None:
        """Whatever is unclear after the attempts, what the key then holds decides."""
        place = _place(key)
        if not self._keeps_conditions and self._holds(place, body):
            return
        condition = ABSENT if self._keeps_conditions else Condition()
        try:
            stored = self._retries.run(
                f"put {key}", lambda: self._bucket.put(place, body, condition)
            )
        except ConditionFailed:
            if not self._holds(place, body):
                raise StoreUnavailable(f"{key} was deleted while it was put") from None
        except Transient:
            if not self._holds(place, body):
                raise
        else:
            if not stored.is_confirmed and not self._holds(place, body):
                raise StoreUnavailable(f"{key} is not there, though the store has taken it")

    def _read(self, key: str, attempt: Callable[[], T]) -> T:
        """Bytes that are wrong each time were not garbled on their way."""
        garbled = 0

        def counted() -> T:
            nonlocal garbled
            try:
                return attempt()
            except Garbled:
                garbled += 1
                raise

        try:
            return self._retries.run(f"get {key}", counted)
        except Garbled as error:
            if garbled < self._retries.attempts:
                raise
            raise ObjectDamaged(str(error)) from error

    def _holds(self, place: str, body: Body) -> bool:
        """Whether these bytes are there; other bytes are a conflict."""

        def attempt() -> bool:
            with self._bucket.opened(place) as download, body.open() as ours:
                return bodies.is_same(download.stream, ours)

        try:
            is_same = self._read(place, attempt)
        except ObjectMissing:
            return False
        if not is_same:
            raise ObjectConflict(f"{place.removeprefix(FOLDER)} holds other bytes")
        return True


class S3Retention:
    def __init__(self, bucket: Bucket, retries: Retries) -> None:
        self._bucket = bucket
        self._retries = retries

    def delete(self, key: str) -> None:
        place = _place(key)
        self._retries.run(f"delete {key}", lambda: self._bucket.delete(place))


def _place(key: str) -> str:
    check_key(key)
    return FOLDER + key
