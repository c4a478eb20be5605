"""Opening a store by its settings: a directory, or a bucket.

Whether an S3-compatible store keeps the conditions that write-once and swaps rest on.

A store in a bucket: opened with a probe or without, to write, to read or to delete.

A store for whoever only reads: it needs no right to write, and cannot be made to write.

The way to an object store, as something that travels; the secrets are those of each host.
"""

from __future__ import annotations

import logging
import os
from argparse import ArgumentParser
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Final, Never, Self

from veen.objects.files import FileHeads, FileObjects, FileRetention, StoreLayout
from veen.objects.port import (
    FileSettings,
    HeadStore,
    NotAllowed,
    ObjectStore,
    Retention,
    S3Settings,
    Store,
    StoreCredentials,
    StoreHead,
    StoreRefused,
    StoreSettings,
    StoreStatus,
    body_of_bytes,
    credentials_in,
    settings_of,
)
from veen.objects.s3 import (
    ABSENT,
    Condition,
    ConditionFailed,
    ConditionUnknown,
    Retries,
    S3Bucket,
    S3Heads,
    S3Objects,
    S3Retention,
    open_bucket,
)

# One name and the same bytes for ever: a second probe changes nothing, and none needs the right
# to delete.
PLACE: Final = "probe"
_BODY: Final = body_of_bytes(b"Written to see whether the store keeps conditional writes.\n")
_NOBODYS_ETAG: Final = '"00000000000000000000000000000000"'


@dataclass(frozen=True, slots=True)
class Conditions:
    keeps_if_none_match: bool
    keeps_if_match: bool


def probe(bucket: S3Bucket, retries: Retries) -> Conditions:
    """Put a key twice under each condition that does not hold; the store must refuse it."""

    def is_refused(condition: Condition) -> bool:
        try:
            retries.run("probe", lambda: bucket.put(PLACE, _BODY, condition))
        except ConditionFailed:
            return True
        except ConditionUnknown:
            return False
        return False

    # When the first put is refused, the key was there already and the word is kept.
    keeps_if_none_match = is_refused(ABSENT) or is_refused(ABSENT)
    return Conditions(keeps_if_none_match, is_refused(Condition(IfMatch=_NOBODYS_ETAG)))


_LOG = logging.getLogger(__name__)


class BucketStore:
    def __init__(self, settings: S3Settings, credentials: StoreCredentials | None) -> None:
        if credentials is None:
            raise StoreRefused(f"{settings.url} needs an access key and a secret")
        self._settings = settings
        self._bucket = open_bucket(settings, credentials)
        self._retries = Retries(attempts=settings.attempts)

    def probed(self) -> Store:
        """One that would overwrite is refused unless it is accepted."""
        status = self._status()
        if status.warnings and not self._settings.accept_overwriting_store:
            raise StoreRefused(
                "; ".join(status.warnings) + ". Use another store, or set accept_overwriting_store"
            )
        for warning in status.warnings:
            _LOG.warning("%s", warning)
        return self._opened(status, keeps_conditions=bool(status.keeps_conditions))

    def known(self, *, keeps_conditions: bool) -> Store:
        """As another process has found it."""
        status = StoreStatus(
            kind="s3",
            url=self._settings.url,
            keeps_if_none_match=keeps_conditions,
            keeps_if_match=keeps_conditions,
        )
        return self._opened(status, keeps_conditions=keeps_conditions)

    def unasked(self) -> Store:
        """Without a probe, and so without a word on what the store keeps."""
        status = StoreStatus(kind="s3", url=self._settings.url)
        return self._opened(status, keeps_conditions=False)

    def status(self) -> StoreStatus:
        """One that we may not write to is not asked."""
        try:
            return self._status()
        except NotAllowed:
            return StoreStatus(kind="s3", url=self._settings.url)

    def retention(self) -> S3Retention:
        return S3Retention(self._bucket, self._retries)

    def _status(self) -> StoreStatus:
        result = probe(self._bucket, self._retries)
        return StoreStatus(
            kind="s3",
            url=self._settings.url,
            keeps_if_none_match=result.keeps_if_none_match,
            keeps_if_match=result.keeps_if_match,
        )

    def _opened(self, status: StoreStatus, *, keeps_conditions: bool) -> Store:
        return Store(
            S3Objects(self._bucket, self._retries, keeps_conditions=keeps_conditions),
            S3Heads(self._bucket, self._retries, keeps_conditions=keeps_conditions),
            status,
        )


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

    def read(self, name: str) -> StoreHead:
        return self._heads.read(name)

    def swap(self, old: StoreHead, value: bytes) -> StoreHead:  # noqa: ARG002 - the port's words
        _refuse(old.name)


def _refuse(what: str) -> Never:
    raise StoreRefused(f"{what}: the store was opened to be read alone, and nothing was written")


def open_store(settings: StoreSettings, credentials: StoreCredentials | None = None) -> Store:
    """Open and probe the store; one that would overwrite is refused unless it is accepted."""
    if isinstance(settings, FileSettings):
        layout = StoreLayout(settings.root)
        layout.prepare()
        return _directory(layout)
    return _bucket(settings, credentials).probed()


def open_probed(
    settings: StoreSettings, credentials: StoreCredentials | None, *, keeps_conditions: bool
) -> Store:
    """Open a store to write to, as another process that opened and probed it has found it."""
    if isinstance(settings, FileSettings):
        return _directory(StoreLayout(settings.root))
    return _bucket(settings, credentials).known(keeps_conditions=keeps_conditions)


def open_to_read(settings: StoreSettings, credentials: StoreCredentials | None = None) -> Store:
    """Open a store without a probe: nothing is written, and no right to write is needed."""
    if isinstance(settings, FileSettings):
        layout = StoreLayout(settings.root)
        layout.refuse_unless_there()
        store = _directory(layout)
    else:
        store = _bucket(settings, credentials).unasked()
    return Store(ReadObjects(store.objects), ReadHeads(store.heads), store.status)


def look_at(settings: StoreSettings, credentials: StoreCredentials | None = None) -> StoreStatus:
    """What a store keeps its word on; no store is refused."""
    if isinstance(settings, FileSettings):
        return _directory(StoreLayout(settings.root)).status
    return _bucket(settings, credentials).status()


def open_retention(
    settings: StoreSettings, credentials: StoreCredentials | None = None
) -> Retention:
    """The right to delete, for the one who runs a retention."""
    if isinstance(settings, FileSettings):
        return FileRetention(StoreLayout(settings.root))
    return _bucket(settings, credentials).retention()


def _directory(layout: StoreLayout) -> Store:
    # A link fails where the name is taken and a lock is held by one: nothing to probe for.
    status = StoreStatus(
        kind="directory", url=layout.root.as_uri(), keeps_if_none_match=True, keeps_if_match=True
    )
    return Store(FileObjects(layout), FileHeads(layout), status)


def _bucket(settings: S3Settings, credentials: StoreCredentials | None) -> BucketStore:
    # Its library takes longer to load than most commands run; a directory does without.

    return BucketStore(settings, credentials)


OPTIONS: Final = ("endpoint", "region", "addressing")
ACCEPT: Final = "accept_overwriting_store"


@dataclass(frozen=True, slots=True)
class StoreRef:
    """Which store; ``keeps_conditions`` is what a probe has found, None before there was one."""

    settings: StoreSettings
    keeps_conditions: bool | None = None

    def to_read(self) -> Store:
        """The store without a probe: whoever only reads needs no right to write."""
        return _opened(self.settings)

    def to_write(self) -> Store:
        """The store, probed: once, on the driver."""
        return open_store(self.settings, credentials_in(os.environ))

    def probed(self) -> Self:
        """The door that travels to executors that write: they are told what the driver found."""
        return replace(self, keeps_conditions=bool(self.to_write().status.keeps_conditions))

    def to_put(self) -> Store:
        """The store to write to, as the driver has found it."""
        if self.keeps_conditions is None:
            raise StoreRefused("the store was not probed, and nothing is put there unseen")
        return _opened_to_put(self.settings, self.keeps_conditions)


def add_options(parser: ArgumentParser) -> None:
    """What every job is told of a store, beside its URL."""
    for name in OPTIONS:
        parser.add_argument(f"--{name}", help="of a store like S3")
    parser.add_argument(
        "--accept-overwriting-store",
        action="store_true",
        help="write also to a store without conditional writes",
    )


def store_ref(url: str, given: Mapping[str, object]) -> StoreRef:
    """A door by URL and whatever was given of the options; "true" is how Spark writes a flag."""
    result = {name: str(value) for name in OPTIONS if (value := given.get(name))}
    accept = str(given.get(ACCEPT, False)).lower() == "true"
    return StoreRef(settings_of(url, accept_overwriting_store=accept, **result))


@cache
def _opened(settings: StoreSettings) -> Store:
    """One connection for all tasks of a process."""
    return open_to_read(settings, credentials_in(os.environ))


@cache
def _opened_to_put(settings: StoreSettings, keeps_conditions: bool) -> Store:
    return open_probed(settings, credentials_in(os.environ), keeps_conditions=keeps_conditions)
