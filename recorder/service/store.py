"""The object store of a recorder, for its service; secrets come from the environment alone."""

from __future__ import annotations

from collections.abc import Mapping

from recorder.archive.store import HubArchive
from veen.objects.settings import Credentials, StoreSettings
from veen.objects.store import open_to_read


def archive_in(store: StoreSettings, hub_id: bytes, environment: Mapping[str, str]) -> HubArchive:
    """What the store holds of a hub, to be read only."""
    return HubArchive(open_to_read(store, credentials(environment)), hub_id)


def credentials(environment: Mapping[str, str]) -> Credentials | None:
    access = environment.get("AWS_ACCESS_KEY_ID")
    secret = environment.get("AWS_SECRET_ACCESS_KEY")
    if not access or not secret:
        return None
    token = environment.get("AWS_SESSION_TOKEN") or None
    return Credentials(access_key=access, secret_key=secret, session_token=token)
