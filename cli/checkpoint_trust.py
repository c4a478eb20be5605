"""By which identity of a hub its recorder checkpoints are judged: the newest that is known here."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import reduce

from recorder.checkpoints import hub_papers
from recorder.settings import Settings
from veen.client.state import load as load_state
from veen.client.trust import newest
from veen.hub_identity import HubIdentity
from veen.keystore.directory import ClientDir


def kept_identities(settings: Settings, hub_id: bytes) -> Iterator[HubIdentity]:
    """Those that the recorder keeps beside its checkpoints, and that its client has pinned."""
    if settings.hub.hub_id != hub_id:
        return
    held = hub_papers.read(settings.checkpoint.path)
    if held is not None:
        yield held
    for one in load_state(ClientDir(settings.hub.client).state).named(hub_id):
        yield one.identity


def newest_of(every: Iterable[HubIdentity | None]) -> HubIdentity | None:
    """The newest; None without any. Untrusted if one does not extend another."""
    known = [one for one in every if one is not None]
    return reduce(newest, known) if known else None
