"""One client directory against one hub: who we are, whom we believe, what we remember."""

from __future__ import annotations

import logging
from pathlib import Path
from threading import RLock
from typing import Final

from veen import stream
from veen.checkpoint import Checkpoint
from veen.client import trust
from veen.client.address import HubAddress
from veen.client.hub_api import HubApi
from veen.client.state import KnownHub, State, load, save
from veen.client.surroundings import Surroundings
from veen.client.view import LabelView
from veen.errors import Untrusted
from veen.hub_identity import HubIdentity
from veen.invariants import Rules
from veen.keystore.identity import Identity
from veen.label import EpochLabels, routing_key
from veen.limits import Limits
from veen.profile import Profile
from veen.receipt import Receipt

MAX_SKEW_SEC: Final = 60
_log = logging.getLogger(__name__)

GIVEN, DIRECTORY, FIRST_CONTACT = "given", "data directory", "first contact"
"""How a pin came about."""


def skew_warning(hub_time_ahead: int) -> str | None:
    """What to say of a hub whose time is not ours; None for what a network and a second explain."""
    if abs(hub_time_ahead) <= MAX_SKEW_SEC:
        return None
    way = "ahead of" if hub_time_ahead > 0 else "behind"
    return (
        f"hub time is {abs(hub_time_ahead)} s {way} this host's clock: compare both clocks with a "
        'third one and set the wrong one right; see "The clock is wrong" in docs/runbook.md'
    )


class Session:
    """The state on disk is replaced at each ``keep``; one process at a time holds a directory."""

    def __init__(
        self,
        root: Path,
        identity: Identity,
        api: HubApi,
        surroundings: Surroundings,
    ) -> None:
        self.root = root
        self.identity = identity
        self.api = api
        self.surroundings = surroundings
        self._state = load(self._path)
        self.moving = RLock()
        self.limits = Limits()
        self.hub_time_ahead = 0

    @property
    def _path(self) -> Path:
        return self.root / "state.json"

    @property
    def state(self) -> State:
        return self._state

    @property
    def hub(self) -> HubIdentity:
        """The pinned identity; ``meet`` has made sure there is one."""
        known = self._state.hubs.get(self.api.transport.url)
        if known is None:
            raise Untrusted(f"no hub is pinned for {self.api.transport.url} yet")
        return known.identity

    def meet(self, address: HubAddress, hub_id: bytes | None) -> HubIdentity:
        """Ask the hub who it is; what is pinned, here or now, decides whether it is believed."""
        status = self.api.status()
        offered = status.identity()
        if hub_id is not None:
            trust.pinned(offered, hub_id)
        if address.identity is not None:
            trust.followed(address.identity, offered)
        known = self._state.hubs.get(address.url)
        for one in (known, *self._state.named(offered.hub_id)):
            if one is not None:
                trust.followed(one.identity, offered)
        self.limits = Limits(**status.limits.to_json())
        self._set_time(status.hub_ts)
        self._pin(address, known, offered, GIVEN if hub_id is not None else None)
        return offered

    def verify_receipt(self, receipt: Receipt) -> None:
        """Refuse a receipt no pinned key signed; a new key may have come since we last asked."""
        try:
            self.hub.verify_receipt(receipt)
        except Untrusted:
            self.ask_identity().verify_receipt(receipt)

    def verify_checkpoint(self, checkpoint: Checkpoint, profile: Profile, hub_ts: int) -> None:
        """Refuse a checkpoint no pinned key of its time signed, or that lacks witnesses (KEX0.1).

        ``hub_ts`` is that of the receipt at upto_seq.
        """
        try:
            self.hub.verify_checkpoint(
                checkpoint, profile, not_before=hub_ts, not_after=self.hub_now()
            )
        except Untrusted:
            self.ask_identity().verify_checkpoint(
                checkpoint, profile, not_before=hub_ts, not_after=self.hub_now()
            )

    def ask_identity(self) -> HubIdentity:
        """The hub's identity and time as of now; a newer identity that follows on is pinned."""
        known = self._state.hubs[self.api.transport.url]
        status = self.api.status()
        offered = trust.followed(known.identity, status.identity())
        self._set_time(status.hub_ts)
        self._pin(HubAddress(self.api.transport.url, None), known, offered, None)
        return offered

    def labels(self, name: str, profile: Profile) -> EpochLabels:
        return EpochLabels(routing_key(self.hub.hub_id), stream.stream_id(name), profile)

    def rules(self, labels: EpochLabels) -> Rules:
        profiles = {labels.profile.profile_id(): labels.profile}
        return Rules(hub=self.hub, profiles=profiles, limits=self.limits, stream=labels)

    def hub_now(self) -> int:
        """The hub's time as far as we know it; epochs go by it."""
        return self.surroundings.clock() + self.hub_time_ahead

    def ask_time(self) -> None:
        self._set_time(self.api.status().hub_ts)

    def view(self, label: bytes, name: str, epoch: int) -> LabelView:
        known = self._state.views.get(label)
        return known or LabelView(hub_id=self.hub.hub_id, stream=name, epoch=epoch)

    def keep(self, label: bytes, view: LabelView) -> None:
        """Remember a view; it is on disk on return.

        Who makes it from the one before holds ``moving``, so that no thread takes back another's.
        """
        with self.moving:
            self._save(self._state.with_view(label, view))

    def _set_time(self, hub_ts: int) -> None:
        before, self.hub_time_ahead = self.hub_time_ahead, hub_ts - self.surroundings.clock()
        if (warning := skew_warning(self.hub_time_ahead)) and not skew_warning(before):
            _log.warning("%s: %s", self.api.transport.url, warning)

    def _pin(
        self, address: HubAddress, known: KnownHub | None, offered: HubIdentity, origin: str | None
    ) -> None:
        if known is not None and known.identity == offered:
            return
        found = origin or (DIRECTORY if address.identity is not None else FIRST_CONTACT)
        hub = KnownHub(identity=offered, origin=known.origin if known else found)
        with self.moving:
            self._save(self._state.with_hub(address.url, hub))

    def _save(self, new: State) -> None:
        save(self._path, new)
        self._state = new
