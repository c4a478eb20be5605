"""Opening a store by its settings: a directory or a bucket, to write, to read or to delete.

A bucket opened for writing is probed for the conditional requests that write-once and swaps need.
A store opened for reading needs no right to write and cannot be written. ``StoreRef`` names a store
and can be sent to other processes; the credentials are those of each host.
"""

from __future__ import annotations

import os
from argparse import ArgumentParser
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Final, Never, Self

from veen.objects.files import FileHeads, FileObjects, FileRetention, StoreLayout
from veen.objects.port import (
    FileSettings,
    HeadStore,
    ObjectStore,
    Retention,
    S3Settings,
    Store,
    StoreCredentials,
    StoreHead,
    StoreLocation,
    StoreRefused,
    StoreSettings,
    StoreStatus,
    credentials_in,
)

if TYPE_CHECKING:
    from veen.objects.bucket import BucketStore

OPTIONS: Final = ("endpoint", "region", "addressing")
ACCEPT: Final = "accept_overwriting_store"


class ReadObjects:
    """An ObjectStore that refuses to write."""

    def __init__(self, objects: ObjectStore) -> None:
        self._objects = objects

    def put(self, key: str, body: bytes) -> None:  # noqa: ARG002 - the port's words
        _refuse_write(key)

    def put_file(self, key: str, source: Path) -> None:  # noqa: ARG002 - the port's words
        _refuse_write(key)

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
    """A HeadStore that refuses to write."""

    def __init__(self, heads: HeadStore) -> None:
        self._heads = heads

    def read(self, name: str) -> StoreHead:
        return self._heads.read(name)

    def swap(self, old: StoreHead, value: bytes) -> StoreHead:  # noqa: ARG002 - the port's words
        _refuse_write(old.name)


def _refuse_write(what: str) -> Never:
    raise StoreRefused(f"{what}: the store is open read-only; nothing was written")


def open_store(settings: StoreSettings, credentials: StoreCredentials | None = None) -> Store:
    """Open and probe a store; one that could overwrite is refused unless that is accepted."""
    if isinstance(settings, FileSettings):
        layout = StoreLayout(settings.root)
        layout.prepare()
        return _directory(layout)
    return _bucket(settings, credentials).probed()


def open_probed(
    settings: StoreSettings, credentials: StoreCredentials | None, *, keeps_conditions: bool
) -> Store:
    """Open a store for writing, with the result of a probe by another process."""
    if isinstance(settings, FileSettings):
        return _directory(StoreLayout(settings.root))
    return _bucket(settings, credentials).known(keeps_conditions=keeps_conditions)


def open_to_read(settings: StoreSettings, credentials: StoreCredentials | None = None) -> Store:
    """Open a store for reading, without a probe; no right to write is needed."""
    if isinstance(settings, FileSettings):
        layout = StoreLayout(settings.root)
        layout.verify_exists()
        store = _directory(layout)
    else:
        store = _bucket(settings, credentials).unprobed()
    return Store(ReadObjects(store.objects), ReadHeads(store.heads), store.status)


def look_at(settings: StoreSettings, credentials: StoreCredentials | None = None) -> StoreStatus:
    """The status of a store; no store is refused."""
    if isinstance(settings, FileSettings):
        return _directory(StoreLayout(settings.root)).status
    return _bucket(settings, credentials).status()


def open_retention(
    settings: StoreSettings, credentials: StoreCredentials | None = None
) -> Retention:
    """Open a store for deletion, for retention."""
    if isinstance(settings, FileSettings):
        return FileRetention(StoreLayout(settings.root))
    return _bucket(settings, credentials).retention()


def _directory(layout: StoreLayout) -> Store:
    # Links fail if the name exists, and locks are exclusive: no probe is needed.
    status = StoreStatus(
        kind="directory", url=layout.root.as_uri(), keeps_if_none_match=True, keeps_if_match=True
    )
    return Store(FileObjects(layout), FileHeads(layout), status)


def _bucket(settings: S3Settings, credentials: StoreCredentials | None) -> BucketStore:
    # boto3 is optional and slow to import; a directory does not need it.
    from veen.objects.bucket import BucketStore  # noqa: PLC0415

    return BucketStore(settings, credentials)


@dataclass(frozen=True, slots=True)
class StoreRef:
    """A reference to a store; ``keeps_conditions`` is the result of a probe, None before it."""

    settings: StoreSettings
    keeps_conditions: bool | None = None

    def to_read(self) -> Store:
        """The store for reading, without a probe."""
        return _opened(self.settings)

    def to_write(self) -> Store:
        """The store for writing, probed: once, on the driver."""
        return open_store(self.settings, credentials_in(os.environ))

    def probed(self) -> Self:
        """The reference with the result of the driver's probe, for executors that write."""
        return replace(self, keeps_conditions=bool(self.to_write().status.keeps_conditions))

    def to_put(self) -> Store:
        """The store for writing, with the result of the driver's probe."""
        if self.keeps_conditions is None:
            raise StoreRefused(
                "the store was not probed for conditional writes; nothing was written"
            )
        return _opened_to_put(self.settings, self.keeps_conditions)


def add_options(parser: ArgumentParser) -> None:
    """Add the options of a store, in addition to its URL."""
    for name in OPTIONS:
        parser.add_argument(f"--{name}", help="of a store like S3")
    parser.add_argument(
        "--accept-overwriting-store",
        action="store_true",
        help="write also to a store without conditional writes",
    )


def store_ref(url: str, given: Mapping[str, object]) -> StoreRef:
    """A reference by URL and options; Spark writes a flag as "true"."""
    options = {name: str(value) for name in OPTIONS if (value := given.get(name))}
    accept = str(given.get(ACCEPT, False)).lower() == "true"
    location = StoreLocation(url=url, accept_overwriting_store=accept, **options)
    return StoreRef(location.settings())


@cache
def _opened(settings: StoreSettings) -> Store:
    """The store for reading, opened once per process."""
    return open_to_read(settings, credentials_in(os.environ))


@cache
def _opened_to_put(settings: StoreSettings, keeps_conditions: bool) -> Store:
    return open_probed(settings, credentials_in(os.environ), keeps_conditions=keeps_conditions)
