"""A store in a bucket, opened with or without a probe of its conditional requests.

Write-once and swaps need If-None-Match and If-Match, which some S3-compatible stores ignore.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Final

from veen.objects.port import (
    NotAllowed,
    S3Settings,
    Store,
    StoreCredentials,
    StoreRefused,
    StoreStatus,
    body_of_bytes,
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

# Always the same key and bytes: a second probe changes nothing, and needs no right to delete.
PLACE: Final = "probe"
_BODY: Final = body_of_bytes(b"Written to see whether the store keeps conditional writes.\n")
_NOBODYS_ETAG: Final = '"00000000000000000000000000000000"'
_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Conditions:
    """The conditional requests that a store supports."""

    keeps_if_none_match: bool
    keeps_if_match: bool


def probe(bucket: S3Bucket, retries: Retries) -> Conditions:
    """Put a key with conditions that are not fulfilled; the store must refuse them."""

    def is_refused(condition: Condition) -> bool:
        try:
            retries.run("probe", lambda: bucket.put(PLACE, _BODY, condition))
        except ConditionFailed:
            return True
        except ConditionUnknown:
            return False
        return False

    # If the first put is refused, the key existed and the condition is supported.
    keeps_if_none_match = is_refused(ABSENT) or is_refused(ABSENT)
    return Conditions(keeps_if_none_match, is_refused(Condition(IfMatch=_NOBODYS_ETAG)))


class BucketStore:
    """Opens a store in a bucket, with or without a probe."""

    def __init__(self, settings: S3Settings, credentials: StoreCredentials | None) -> None:
        if credentials is None:
            raise StoreRefused(f"{settings.url} needs an access key and a secret key; set both")
        self._settings = settings
        self._bucket = open_bucket(settings, credentials)
        self._retries = Retries(attempts=settings.attempts)

    def probed(self) -> Store:
        """The probed store; StoreRefused if it could overwrite, unless that is accepted."""
        status = self._status()
        if status.warnings and not self._settings.accept_overwriting_store:
            raise StoreRefused(
                "; ".join(status.warnings) + ". Use another store, or set accept_overwriting_store"
            )
        for warning in status.warnings:
            _LOG.warning("%s", warning)
        return self._opened(status, keeps_conditions=bool(status.keeps_conditions))

    def known(self, *, keeps_conditions: bool) -> Store:
        """The store with the result of a probe by another process."""
        status = StoreStatus(
            kind="s3",
            url=self._settings.url,
            keeps_if_none_match=keeps_conditions,
            keeps_if_match=keeps_conditions,
        )
        return self._opened(status, keeps_conditions=keeps_conditions)

    def unprobed(self) -> Store:
        """The store without a probe."""
        status = StoreStatus(kind="s3", url=self._settings.url)
        return self._opened(status, keeps_conditions=False)

    def status(self) -> StoreStatus:
        """The status by a probe, or without one if we may not write."""
        try:
            return self._status()
        except NotAllowed:
            return StoreStatus(kind="s3", url=self._settings.url)

    def retention(self) -> S3Retention:
        return S3Retention(self._bucket, self._retries)

    def _status(self) -> StoreStatus:
        conditions = probe(self._bucket, self._retries)
        return StoreStatus(
            kind="s3",
            url=self._settings.url,
            keeps_if_none_match=conditions.keeps_if_none_match,
            keeps_if_match=conditions.keeps_if_match,
        )

    def _opened(self, status: StoreStatus, *, keeps_conditions: bool) -> Store:
        return Store(
            S3Objects(self._bucket, self._retries, keeps_conditions=keeps_conditions),
            S3Heads(self._bucket, self._retries, keeps_conditions=keeps_conditions),
            status,
        )
