"""How far the streams of the zone's hub go at this moment, as the hub itself tells it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from veen_page_services import ask, hub_of
from veen_page_zone import Place

from recorder.settings import HubSettings
from veen.client.credentials import Anonymous, Credentials, Principal
from veen.errors import VeenError
from veen.keystore.directory import ClientDir
from veen.keystore.secrets import Secrets
from veen.sign import PrivateKey
from veen.tooling import StreamsResponse

Heads = Callable[[Place], Mapping[str, int] | None]
_PATH: Final = "/tooling/streams"
_MOST_BYTES: Final = 4 << 20


def heads(
    place: Place, clock: Callable[[], int], random: Callable[[int], bytes]
) -> Mapping[str, int] | None:
    """By stream, those that the recorder may read; None where the hub cannot be asked.

    It is asked as the recorder asks it. A key under a passphrase is left alone: to open it takes
    longer than a page may.
    """
    hub = place.recorder.hub
    if hub.passphrase_file is not None:
        return None
    try:
        who = _credentials(hub, clock, random)
        headers = who.headers("GET", f"{hub.url}{_PATH}", b"")
        with ask(hub_of(place), _PATH, headers | {"Accept": "application/cbor"}) as reply:
            found = StreamsResponse.decode(reply.read(_MOST_BYTES))
    except (VeenError, OSError, ValueError):
        # Whether it answers is told at the top of the page.
        return None
    return {
        one.name: max((label.last_stream_seq for label in one.labels), default=0)
        for one in found.streams
    }


def _credentials(
    hub: HubSettings, clock: Callable[[], int], random: Callable[[int], bytes]
) -> Credentials:
    if hub.principal is None:
        return Anonymous()
    # Read, and no more: who opens a client directory holds its lock, which the recorder does.
    secrets = Secrets.decode(ClientDir(hub.client).sealed().open(None))
    return Principal(hub.principal, PrivateKey(secrets.client.seed), clock, random)
