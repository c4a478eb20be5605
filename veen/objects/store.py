"""An opened store: its objects, its heads, and what is known about how far it can be trusted."""

from __future__ import annotations

import logging
from dataclasses import dataclass

from veen.objects.file_heads import FileHeads
from veen.objects.files import FileObjects, FileRetention, Layout
from veen.objects.port import HeadStore, ObjectStore, Retention, StoreRefused
from veen.objects.probe import probe
from veen.objects.retries import Retries
from veen.objects.s3 import Bucket, open_bucket
from veen.objects.s3_heads import S3Heads
from veen.objects.s3_objects import S3Objects, S3Retention
from veen.objects.settings import Credentials, FileSettings, S3Settings, StoreSettings

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreStatus:
    """What the probe at start found, for status and metrics."""

    kind: str
    url: str
    keeps_if_none_match: bool
    keeps_if_match: bool

    @property
    def keeps_conditions(self) -> bool:
        return self.keeps_if_none_match and self.keeps_if_match

    @property
    def warnings(self) -> tuple[str, ...]:
        found = []
        if not self.keeps_if_none_match:
            found.append(
                f"{self.url} ignores If-None-Match: two writers at once can overwrite an object"
            )
        if not self.keeps_if_match:
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
        return _open_directory(settings)
    bucket, retries = _bucket(settings, credentials)
    found = probe(bucket, retries)
    status = StoreStatus(
        kind="s3",
        url=settings.url,
        keeps_if_none_match=found.keeps_if_none_match,
        keeps_if_match=found.keeps_if_match,
    )
    _look_at(status, settings)
    keeps = status.keeps_conditions
    return Store(
        S3Objects(bucket, retries, keeps_conditions=keeps),
        S3Heads(bucket, retries, keeps_conditions=keeps),
        status,
    )


def open_retention(settings: StoreSettings, credentials: Credentials | None = None) -> Retention:
    """The right to delete, for the one who runs a retention."""
    if isinstance(settings, FileSettings):
        return FileRetention(Layout(settings.root))
    return S3Retention(*_bucket(settings, credentials))


def _open_directory(settings: FileSettings) -> Store:
    layout = Layout(settings.root)
    layout.prepare()
    url = layout.root.as_uri()
    status = StoreStatus(kind="directory", url=url, keeps_if_none_match=True, keeps_if_match=True)
    return Store(FileObjects(layout), FileHeads(layout), status)


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
