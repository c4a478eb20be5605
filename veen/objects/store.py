"""An opened store: its objects, its heads, and what is known about how far it can be trusted."""

from __future__ import annotations

import logging
from dataclasses import dataclass

from veen.objects.file_heads import FileHeads
from veen.objects.files import FileObjects, FileRetention, Layout
from veen.objects.port import HeadStore, NotAllowed, ObjectStore, Retention, StoreRefused
from veen.objects.probe import probe
from veen.objects.reading import ReadHeads, ReadObjects
from veen.objects.retries import Retries
from veen.objects.s3 import Bucket, open_bucket
from veen.objects.s3_heads import S3Heads
from veen.objects.s3_objects import S3Objects, S3Retention
from veen.objects.settings import Credentials, FileSettings, S3Settings, StoreSettings

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreStatus:
    """What a probe found, for status and metrics; None is what nobody has looked at."""

    kind: str
    url: str
    keeps_if_none_match: bool | None = None
    keeps_if_match: bool | None = None

    @property
    def keeps_conditions(self) -> bool | None:
        found = {self.keeps_if_none_match, self.keeps_if_match}
        return False if False in found else None if None in found else True

    @property
    def warnings(self) -> tuple[str, ...]:
        found = []
        if self.keeps_if_none_match is False:
            found.append(
                f"{self.url} ignores If-None-Match: two writers at once can overwrite an object"
            )
        if self.keeps_if_match is False:
            found.append(f"{self.url} ignores If-Match: of two swaps of a head one can be lost")
        return tuple(found)


@dataclass(frozen=True, slots=True)
class Store:
    objects: ObjectStore
    heads: HeadStore
    status: StoreStatus


def open_store(settings: StoreSettings, credentials: Credentials | None = None) -> Store:
    """Open and probe the store; one that would overwrite is refused unless it is accepted."""
    if isinstance(settings, FileSettings):
        layout = Layout(settings.root)
        layout.prepare()
        return _directory(layout)
    bucket, retries = _bucket(settings, credentials)
    status = _probed(settings, bucket, retries)
    _look_at(status, settings)
    return _in_bucket(bucket, retries, status, keeps_conditions=bool(status.keeps_conditions))


def open_probed(
    settings: StoreSettings, credentials: Credentials | None, *, keeps_conditions: bool
) -> Store:
    """Open a store to write to, as another process that opened and probed it has found it."""
    if isinstance(settings, FileSettings):
        return _directory(Layout(settings.root))
    status = StoreStatus(
        kind="s3",
        url=settings.url,
        keeps_if_none_match=keeps_conditions,
        keeps_if_match=keeps_conditions,
    )
    return _in_bucket(*_bucket(settings, credentials), status, keeps_conditions=keeps_conditions)


def open_to_read(settings: StoreSettings, credentials: Credentials | None = None) -> Store:
    """Open a store without a probe: nothing is written, and no right to write is needed."""
    if isinstance(settings, FileSettings):
        layout = Layout(settings.root)
        layout.refuse_unless_there()
        found = _directory(layout)
    else:
        status = StoreStatus(kind="s3", url=settings.url)
        found = _in_bucket(*_bucket(settings, credentials), status, keeps_conditions=False)
    return Store(ReadObjects(found.objects), ReadHeads(found.heads), found.status)


def look_at(settings: StoreSettings, credentials: Credentials | None = None) -> StoreStatus:
    """What a store keeps its word on; no store is refused, and one that we may not write to is
    not asked."""
    if isinstance(settings, FileSettings):
        return _directory(Layout(settings.root)).status
    try:
        return _probed(settings, *_bucket(settings, credentials))
    except NotAllowed:
        return StoreStatus(kind="s3", url=settings.url)


def open_retention(settings: StoreSettings, credentials: Credentials | None = None) -> Retention:
    """The right to delete, for the one who runs a retention."""
    if isinstance(settings, FileSettings):
        return FileRetention(Layout(settings.root))
    return S3Retention(*_bucket(settings, credentials))


def _directory(layout: Layout) -> Store:
    # A link fails where the name is taken and a lock is held by one: nothing to probe for.
    status = StoreStatus(
        kind="directory", url=layout.root.as_uri(), keeps_if_none_match=True, keeps_if_match=True
    )
    return Store(FileObjects(layout), FileHeads(layout), status)


def _in_bucket(
    bucket: Bucket, retries: Retries, status: StoreStatus, *, keeps_conditions: bool
) -> Store:
    return Store(
        S3Objects(bucket, retries, keeps_conditions=keeps_conditions),
        S3Heads(bucket, retries, keeps_conditions=keeps_conditions),
        status,
    )


def _probed(settings: S3Settings, bucket: Bucket, retries: Retries) -> StoreStatus:
    found = probe(bucket, retries)
    return StoreStatus(
        kind="s3",
        url=settings.url,
        keeps_if_none_match=found.keeps_if_none_match,
        keeps_if_match=found.keeps_if_match,
    )


def _bucket(settings: S3Settings, credentials: Credentials | None) -> tuple[Bucket, Retries]:
    if credentials is None:
        raise StoreRefused(f"{settings.url} needs an access key and a secret")
    return open_bucket(settings, credentials), Retries(attempts=settings.attempts)


def _look_at(status: StoreStatus, settings: S3Settings) -> None:
    if status.warnings and not settings.accept_overwriting_store:
        raise StoreRefused(
            "; ".join(status.warnings) + ". Use another store, or set accept_overwriting_store"
        )
    for warning in status.warnings:
        _LOG.warning("%s", warning)
