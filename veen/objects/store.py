"""Opening a store by its settings: a directory, or a bucket."""

from __future__ import annotations

from typing import TYPE_CHECKING

from veen.objects.file_heads import FileHeads
from veen.objects.files import FileObjects, FileRetention, Layout
from veen.objects.opened import Store, StoreStatus
from veen.objects.port import Retention
from veen.objects.reading import ReadHeads, ReadObjects
from veen.objects.settings import Credentials, FileSettings, S3Settings, StoreSettings

if TYPE_CHECKING:
    from veen.objects.bucket_store import BucketStore


def open_store(settings: StoreSettings, credentials: Credentials | None = None) -> Store:
    """Open and probe the store; one that would overwrite is refused unless it is accepted."""
    if isinstance(settings, FileSettings):
        layout = Layout(settings.root)
        layout.prepare()
        return _directory(layout)
    return _bucket(settings, credentials).probed()


def open_probed(
    settings: StoreSettings, credentials: Credentials | None, *, keeps_conditions: bool
) -> Store:
    """Open a store to write to, as another process that opened and probed it has found it."""
    if isinstance(settings, FileSettings):
        return _directory(Layout(settings.root))
    return _bucket(settings, credentials).known(keeps_conditions=keeps_conditions)


def open_to_read(settings: StoreSettings, credentials: Credentials | None = None) -> Store:
    """Open a store without a probe: nothing is written, and no right to write is needed."""
    if isinstance(settings, FileSettings):
        layout = Layout(settings.root)
        layout.refuse_unless_there()
        found = _directory(layout)
    else:
        found = _bucket(settings, credentials).unasked()
    return Store(ReadObjects(found.objects), ReadHeads(found.heads), found.status)


def look_at(settings: StoreSettings, credentials: Credentials | None = None) -> StoreStatus:
    """What a store keeps its word on; no store is refused."""
    if isinstance(settings, FileSettings):
        return _directory(Layout(settings.root)).status
    return _bucket(settings, credentials).status()


def open_retention(settings: StoreSettings, credentials: Credentials | None = None) -> Retention:
    """The right to delete, for the one who runs a retention."""
    if isinstance(settings, FileSettings):
        return FileRetention(Layout(settings.root))
    return _bucket(settings, credentials).retention()


def _directory(layout: Layout) -> Store:
    # A link fails where the name is taken and a lock is held by one: nothing to probe for.
    status = StoreStatus(
        kind="directory", url=layout.root.as_uri(), keeps_if_none_match=True, keeps_if_match=True
    )
    return Store(FileObjects(layout), FileHeads(layout), status)


def _bucket(settings: S3Settings, credentials: Credentials | None) -> BucketStore:
    # Its library takes longer to load than most commands run; a directory does without.
    from veen.objects.bucket_store import BucketStore  # noqa: PLC0415

    return BucketStore(settings, credentials)
