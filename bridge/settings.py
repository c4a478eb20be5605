"""The settings of one side of a bridge: one frozen object, built from a TOML file."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any, Final

from bridge.settings_export import ExportSettings, export_settings
from bridge.settings_import import ImportSettings, import_settings
from bridge.stream_map import OFFLINE_LOG, ONLINE_LOG, Route, StreamMap, default_target
from veen import settings_file
from veen.settings_table import BadSettings, Table
from veen.zone_file import bridge_part, is_zone

DEFAULT_PATH: Final = Path("bridge.toml")
_NAME: Final = re.compile(r"[a-z0-9][a-z0-9.-]{0,39}")


class Zone(Enum):
    """ONLINE exports and never learns what became of it; OFFLINE imports."""

    ONLINE = "online"
    OFFLINE = "offline"

    @property
    def audit_log(self) -> str:
        return ONLINE_LOG if self is Zone.ONLINE else OFFLINE_LOG


@dataclass(frozen=True, slots=True, kw_only=True)
class HubSettings:
    """The hub of this zone; ``ca`` is for https with an authority of one's own."""

    url: str
    hub_id: bytes
    ca: Path | None


@dataclass(frozen=True, slots=True, kw_only=True)
class IdentitySettings:
    """Who acts: a client directory, under what name it signs reads, with what it may write."""

    client: Path
    passphrase_file: Path | None
    principal: str | None
    capability: Path | None


@dataclass(frozen=True, slots=True)
class ReaderKeys:
    """A client directory whose keystore is read without its lock; nobody signs with it."""

    client: Path
    passphrase_file: Path | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """``audit_reader`` is the card that audit entries are sealed to.

    ``reader`` online opens what is exported, so that bodies can be disclosed to the other zone;
    offline it reads what was imported, for status, reconciliation and the repair of the ledger.
    ``reader_keys`` is a keystore that only opens: the private half of the card that the events of
    the zone are sealed to. Whoever reads for this side of the bridge opens with it too.
    ``import_recorder`` records an event of this zone for each bundle that was imported.
    """

    zone: Zone
    name: str
    hub: HubSettings
    bridge: IdentitySettings
    audit: IdentitySettings
    audit_reader: Path
    reader: IdentitySettings | None
    trust: Path
    streams: StreamMap
    exporting: ExportSettings | None
    importing: ImportSettings | None
    reader_keys: ReaderKeys | None = None
    import_recorder: IdentitySettings | None = None


def load(path: Path) -> Settings:
    """The settings of ``bridge.toml`` or of a zone's file; relative paths begin at its folder."""
    return settings_file.read(
        path, lambda one: parse(one, path.absolute().parent), "docs/bridge.example.toml"
    )


def parse(document: dict[str, Any], folder: Path) -> Settings:
    if is_zone(document):
        table = Table(bridge_part(document), "bridge", folder)
    else:
        table = Table(document, "", folder)
    zone = Zone(table.choice("zone", [one.value for one in Zone]))
    hub, audit = _hub(table.table("hub")), table.table("audit")
    reader = table.table("reader")
    found = Settings(
        zone=zone,
        name=_name(table),
        hub=hub,
        bridge=_identity(table.table("bridge")),
        audit_reader=audit.path("reader"),
        audit=_identity(audit),
        reader=_identity(reader) if table.has("reader") else None,
        trust=table.path("trust", "trust"),
        streams=_streams(table, zone, hub),
        exporting=export_settings(table.table("export")) if zone is Zone.ONLINE else None,
        importing=import_settings(table.table("import"), table) if zone is Zone.OFFLINE else None,
        reader_keys=_reader_keys(table),
        import_recorder=_import_recorder(table, zone),
    )
    table.done()
    _verify_identities(found)
    return found


def _name(table: Table) -> str:
    found = str(table.text("name"))
    if not _NAME.fullmatch(found):
        table.refuse("name", found, "up to 40 of a-z, 0-9, '.' and '-' are due")
    return found


def _hub(table: Table) -> HubSettings:
    found = HubSettings(url=table.url("url"), hub_id=table.key("hub_id"), ca=table.path("ca", None))
    table.done()
    return found


def _identity(table: Table) -> IdentitySettings:
    found = IdentitySettings(
        client=table.path("client"),
        passphrase_file=table.path("passphrase_file", None),
        principal=table.text("principal", None),
        capability=table.path("capability", None),
    )
    table.done()
    return found


def _import_recorder(table: Table, zone: Zone) -> IdentitySettings | None:
    if zone is not Zone.OFFLINE or not table.has("import_recorder"):
        return None
    return _identity(table.table("import_recorder"))


def _reader_keys(table: Table) -> ReaderKeys | None:
    passphrase_file = table.path("reader_keys_passphrase_file", None)
    client = table.path("reader_keys", None)
    return None if client is None else ReaderKeys(client, passphrase_file)


def _streams(table: Table, zone: Zone, hub: HubSettings) -> StreamMap:
    """Online the source is this zone's hub; offline each stream names the hub it comes from."""
    routes = []
    for one in table.tables("streams"):
        source = str(one.text("source"))
        source_hub = hub.hub_id if zone is Zone.ONLINE else one.key("hub_id")
        routes.append(Route(source_hub, source, str(one.text("target", default_target(source)))))
        one.done()
    if not routes:
        raise BadSettings("no [[streams]] is given; name at least one that crosses")
    return StreamMap(routes)


def _verify_identities(settings: Settings) -> None:
    """One identity cannot play two parts: what it may do would add up."""
    parts = {
        "bridge": settings.bridge,
        "audit": settings.audit,
        "reader": settings.reader,
        "import_recorder": settings.import_recorder,
    }
    seen: dict[Path, str] = {}
    for part, identity in parts.items():
        if identity is None:
            continue
        other = seen.setdefault(identity.client, part)
        if other != part:
            raise BadSettings(
                f"[{other}] and [{part}] have the same client {identity.client}; "
                "each must be an identity of its own"
            )
