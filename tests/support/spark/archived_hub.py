"""A hub's directory and its archive, and the same damage to both."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import boto3

from recorder.archive.manifest import ArchiveKeys
from recorder.archive.push import push
from recorder.archive.source import PushSource
from recorder.archive.store import HubArchive
from support.objects import object_servers
from veen.limits import Limits
from veen.log import layout
from veen.objects.files import StoreLayout, path_of
from veen.objects.port import S3Settings, StoreSettings
from veen.objects.store import StoreRef


@dataclass
class Archived:
    """A data directory, its archive, and the same damage to both."""

    root: Path
    settings: StoreSettings
    hub_id: bytes

    @property
    def services(self) -> StoreRef:
        return StoreRef(self.settings)

    @property
    def url(self) -> str:
        if isinstance(self.settings, S3Settings):
            return self.settings.url
        return self.settings.root.as_uri()

    @property
    def archive(self) -> HubArchive:
        return HubArchive(self.services.to_read(), self.hub_id)

    def plant(self, name: str, body: bytes | None) -> None:
        """Other bytes for a file of the log, or none: as whoever owns disk and bucket could."""
        path = self.root / name
        if body is None:
            path.unlink()
        else:
            path.write_bytes(body)
        self.overwrite(self.key_of(name), body)

    def overwrite(self, key: str, body: bytes | None) -> None:
        if isinstance(self.settings, S3Settings):
            _overwrite_in_bucket(self.settings, key, body)
            return
        path = path_of(StoreLayout(self.settings.root).objects, key)
        path.unlink()
        if body is not None:
            path.write_bytes(body)

    def key_of(self, name: str) -> str:
        keys = ArchiveKeys(self.hub_id)
        opened = layout.parse_open_chunk(name)
        if opened is None:
            return keys.file(name)
        manifest = self.archive.label(self.archive.latest(), opened.label)
        assert manifest is not None
        assert manifest.tail is not None
        return keys.tail(opened.label, opened.start_seq, manifest.tail.end_seq)


def _overwrite_in_bucket(settings: S3Settings, key: str, body: bytes | None) -> None:
    client = boto3.client(
        "s3",
        endpoint_url=settings.endpoint,
        region_name=settings.region,
        aws_access_key_id=object_servers.KEYS.access_key,
        aws_secret_access_key=object_servers.KEYS.secret_key,
    )
    place = f"{settings.prefix}objects/{key}"
    client.head_object(Bucket=settings.bucket, Key=place)
    if body is None:
        client.delete_object(Bucket=settings.bucket, Key=place)
    else:
        client.put_object(Bucket=settings.bucket, Key=place, Body=body)
    client.close()


def archived(root: Path, settings: StoreSettings) -> Archived:
    source = PushSource(root, Limits())
    done = push(
        source, StoreRef(settings).to_write(), sealer=None, progress=lambda *_: None
    )  # fmt: skip
    return Archived(root, settings, done.hub_id)
