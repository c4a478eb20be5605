"""The object store of a recorder, for its service; secrets come from the environment alone."""

from __future__ import annotations

from collections.abc import Mapping

from recorder.archive.store import HubArchive
from veen.objects.settings import StoreSettings, credentials_in
from veen.objects.store import open_to_read


def archive_in(store: StoreSettings, hub_id: bytes, environment: Mapping[str, str]) -> HubArchive:
    """What the store holds of a hub, to be read only."""
    return HubArchive(open_to_read(store, credentials_in(environment)), hub_id)
