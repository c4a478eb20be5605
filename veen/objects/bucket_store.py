"""A store in a bucket: opened with a probe or without, to write, to read or to delete."""

from __future__ import annotations

import logging

from veen.objects.opened import Store, StoreStatus
from veen.objects.port import NotAllowed, StoreRefused
from veen.objects.probe import probe
from veen.objects.retries import Retries
from veen.objects.s3 import open_bucket
from veen.objects.s3_heads import S3Heads
from veen.objects.s3_objects import S3Objects, S3Retention
from veen.objects.settings import Credentials, S3Settings

_LOG = logging.getLogger(__name__)


class BucketStore:
    def __init__(self, settings: S3Settings, credentials: Credentials | None) -> None:
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
        found = probe(self._bucket, self._retries)
        return StoreStatus(
            kind="s3",
            url=self._settings.url,
            keeps_if_none_match=found.keeps_if_none_match,
            keeps_if_match=found.keeps_if_match,
        )

    def _opened(self, status: StoreStatus, *, keeps_conditions: bool) -> Store:
        return Store(
            S3Objects(self._bucket, self._retries, keeps_conditions=keeps_conditions),
            S3Heads(self._bucket, self._retries, keeps_conditions=keeps_conditions),
            status,
        )
