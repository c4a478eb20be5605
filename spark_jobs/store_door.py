"""The way to an object store, as something that travels; the secrets are those of each host."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Final

from veen.objects.file_heads import FileHeads
from veen.objects.files import FileObjects, Layout
from veen.objects.port import StoreRefused
from veen.objects.retries import Retries
from veen.objects.s3 import open_bucket
from veen.objects.s3_heads import S3Heads
from veen.objects.s3_objects import S3Objects
from veen.objects.settings import Credentials, FileSettings, StoreSettings, settings_of
from veen.objects.store import Store, StoreStatus, open_store

OPTIONS: Final = ("endpoint", "region", "addressing")


@dataclass(frozen=True, slots=True)
class StoreDoor:
    """Which store, and whether it was seen to keep conditional writes."""

    settings: StoreSettings
    keeps_conditions: bool = True

    def to_read(self) -> Store:
        """The store without a probe: whoever only reads needs no right to write."""
        return _opened(self)

    def to_write(self) -> Store:
        """The store once it has been probed; its ``status`` is for the doors of executors."""
        return open_store(self.settings, credentials(os.environ))


def door_of(url: str, given: Mapping[str, str | None]) -> StoreDoor:
    """A door by URL and whatever was given of endpoint, region and addressing."""
    found = {name: value for name in OPTIONS if (value := given.get(name))}
    accept = (given.get("accept_overwriting_store") or "").lower() == "true"
    return StoreDoor(settings_of(url, accept_overwriting_store=accept, **found))


def credentials(environment: Mapping[str, str]) -> Credentials | None:
    access = environment.get("AWS_ACCESS_KEY_ID")
    secret = environment.get("AWS_SECRET_ACCESS_KEY")
    if not access or not secret:
        return None
    token = environment.get("AWS_SESSION_TOKEN") or None
    return Credentials(access_key=access, secret_key=secret, session_token=token)


@cache
def _opened(door: StoreDoor) -> Store:
    """One connection for all tasks of a process."""
    settings, keeps = door.settings, door.keeps_conditions
    kind = "directory" if isinstance(settings, FileSettings) else "s3"
    url = settings.root.as_uri() if isinstance(settings, FileSettings) else settings.url
    status = StoreStatus(kind=kind, url=url, keeps_if_none_match=keeps, keeps_if_match=keeps)
    if isinstance(settings, FileSettings):
        layout = Layout(settings.root)
        return Store(FileObjects(layout), FileHeads(layout), status)
    given = credentials(os.environ)
    if given is None:
        raise StoreRefused(f"{settings.url} needs an access key and a secret on every host")
    bucket, retries = open_bucket(settings, given), Retries(attempts=settings.attempts)
    return Store(
        S3Objects(bucket, retries, keeps_conditions=keeps),
        S3Heads(bucket, retries, keeps_conditions=keeps),
        status,
    )
