"""Checks of a valid bundle against this zone, before a person is asked to approve it.

Its stream needs a target, the bridge a capability that the hub accepts for that target now, the
disk must have space for it, and the stream must not be frozen. An old checkpoint is a warning:
no age excludes a bundle.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from bridge.carrier.directory import BagPath
from bridge.carrier.verify import VerifyReport, too_old
from bridge.connect import read_capability
from bridge.errors import CarrierRefused
from bridge.importer.directory import ImportDirectory
from bridge.importer.ledger import SourceStream
from bridge.importer.run import importing
from bridge.importer.staging import InsufficientSpace, check_signed, verify_space
from bridge.importer.status import import_status
from bridge.settings import BridgeSettings
from bridge.stream_map import UnmappedStream
from bridge.trust import TrustStore
from veen.captoken import CapToken
from veen.client.hub_api import HubApi
from veen.client.transport import HubRefused
from veen.label import stream_id


@dataclass(frozen=True, slots=True)
class Prechecked:
    """The result; ``code`` and ``obstacle`` are empty if the carrier can be imported."""

    code: str = ""
    obstacle: str = ""
    warning: str = ""


class Precheck:
    """Checks all carriers of a medium against the same state of the zone, without changing it."""

    def __init__(self, settings: BridgeSettings, hub: HubApi) -> None:
        self._settings = settings
        self._importing = importing(settings)
        self._hub = hub
        # The free space of these directories is checked, and a new zone does not have them yet.
        ImportDirectory(self._importing.state).create()

    def of(self, report: VerifyReport, bags: Sequence[BagPath]) -> Prechecked:
        """Check a valid carrier; a heartbeat needs only space."""
        warning = too_old(report.age_sec, self._importing.warn_age_sec)
        obstacle = self._obstacle(report, bags)
        return Prechecked(*(obstacle or ("", "")), warning)

    def _obstacle(self, report: VerifyReport, bags: Sequence[BagPath]) -> tuple[str, str] | None:
        if report.bundle is not None:
            header = report.bundle.header
            stream = SourceStream(header.source_hub_id, header.export_stream)
            try:
                target = self._settings.streams.route(*stream).target
            except UnmappedStream as error:
                return "UNMAPPED", str(error)
            if obstacle := self._capability_obstacle(target):
                return "CAPABILITY", obstacle
            if stream in self._frozen:
                return "FROZEN", f"{stream.name} is frozen: its hub signed two histories of it"
        return self._space_obstacle(bags)

    def _space_obstacle(self, bags: Sequence[BagPath]) -> tuple[str, str] | None:
        most = self._importing.max_carrier_bytes
        try:
            signed = [check_signed(bag, self._trust, most) for bag in bags]
            verify_space(self._importing, signed, copies=2)
        except InsufficientSpace as error:
            return "NO_ROOM", str(error)
        except CarrierRefused as error:
            return error.fault.detail_enum, str(error)
        return None

    def _capability_obstacle(self, target: str) -> str:
        token, path = self._token, self._settings.bridge.capability
        if token is None:
            return ""
        if not token.allows_stream(stream_id(target)):
            return (
                f"{path}: expected a capability of the bridge for {target}, got one that does not "
                "allow it; issue and authorize one that does"
            )
        return self._hub_obstacle

    @cached_property
    def _trust(self) -> TrustStore:
        return TrustStore.read(self._settings.trust)

    @cached_property
    def _token(self) -> CapToken | None:
        path = self._settings.bridge.capability
        return None if path is None else read_capability(path)

    @cached_property
    def _hub_obstacle(self) -> str:
        """Why the hub would not accept the bridge's capability; empty if it would."""
        if self._token is None:
            return ""
        try:
            known = self._hub.capability(self._token.auth_ref())
        except HubRefused as error:
            return f"the hub does not know the bridge's capability: {error}; authorize it"
        if known.hub_ts > known.expires_at:
            return (
                f"the bridge's capability expired at {known.expires_at} (hub time {known.hub_ts}); "
                "issue and authorize a new one"
            )
        return ""

    @cached_property
    def _frozen(self) -> frozenset[SourceStream]:
        status = import_status(ImportDirectory(self._importing.state))
        return frozenset(stream.stream for stream in status.streams if stream.frozen_at is not None)
