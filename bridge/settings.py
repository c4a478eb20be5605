"""The settings of the exporting and the importing side of a bridge, from a TOML file."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any, Final

from bridge.bundle import BundleLimits
from bridge.carrier.format import LEAST_VOLUME_BYTES, MAX_PARITY, MAX_VOLUMES, Packing, Preset
from bridge.stream_map import OFFLINE_LOG, ONLINE_LOG, BridgeStreamMap, StreamRoute, default_target
from veen.system.config import (
    BadSettings,
    HubConfig,
    Table,
    bridge_part,
    is_zone,
    read_settings_file,
)

EXPORT_BUNDLE_BYTES: Final = 64 << 20
EXPORT_BUNDLE_EVENTS: Final = 100_000
MOST_BUNDLE_BYTES: Final = 1 << 34
MOST_BUNDLE_EVENTS: Final = 1 << 24
_COMPRESSIONS: Final = ("none", "zstd")
IMPORT_BUNDLE_BYTES: Final = 128 << 20
IMPORT_BUNDLE_EVENTS: Final = 200_000
"""Twice the exporter's default; a bundle is in memory until it is handed to the outbox."""
DEFAULT_INBOX_BYTES: Final = 16 << 30
DEFAULT_QUARANTINE_BYTES: Final = 8 << 30
DEFAULT_RESERVE_BYTES: Final = 1 << 30
DEFAULT_BATCH_BAGS: Final = 1024
_MOST_BAGS: Final = 1 << 20
_MOST_BYTES: Final = 1 << 40
_MOST_EVENTS: Final = 1 << 30
_MOST_APPROVERS: Final = 100
_MOST_WORKERS: Final = 256
_DAY_SEC: Final = 86_400
_LONGEST_SCAN_SEC: Final = _DAY_SEC
_MOST_DAYS: Final = 36_500
DEFAULT_PATH: Final = Path("bridge.toml")
_NAME: Final = re.compile(r"[a-z0-9][a-z0-9.-]{0,39}")


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportSettings:
    """``state`` is the exporter's private directory: its lock, its staging area, its caches.

    ``recipient`` is the public key of the other zone, for encrypted carriers.
    """

    state: Path
    packing: Packing
    recipient: bytes | None
    max_bundle_bytes: int
    max_bundle_events: int


def export_settings(table: Table) -> ExportSettings:
    settings = ExportSettings(
        state=table.path("state", "export"),
        packing=_packing(table),
        recipient=table.key("recipient", None),
        max_bundle_bytes=table.number(
            "max_bundle_bytes", EXPORT_BUNDLE_BYTES, least=1, most=MOST_BUNDLE_BYTES
        ),
        max_bundle_events=table.number(
            "max_bundle_events", EXPORT_BUNDLE_EVENTS, least=1, most=MOST_BUNDLE_EVENTS
        ),
    )
    table.done()
    return settings


def _packing(table: Table) -> Packing:
    """The packing of a preset; explicit volume sizes override those of the preset."""
    titles = [preset.title for preset in Preset]
    chosen = table.choice("medium", titles, Preset.ANY.title)
    preset = next(preset for preset in Preset if preset.title == chosen)
    return Packing(
        volume_bytes=table.number(
            "volume_bytes", preset.volume_bytes, least=LEAST_VOLUME_BYTES, most=2**40
        ),
        volumes_per_bag=table.number(
            "volumes_per_medium", preset.volumes_per_bag, least=1, most=MAX_VOLUMES
        ),
        parity=table.number("parity", 0, least=0, most=MAX_PARITY),
        compress=table.choice("compression", _COMPRESSIONS, "none") == "zstd",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ApprovalRule:
    """``needed`` of ``approvers`` (public keys) must approve a bundle of streams ``prefix``."""

    prefix: str
    needed: int
    approvers: tuple[bytes, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ExclusionRule:
    """Events of streams ``prefix`` with type ``event_type`` are excluded, for ``reason``."""

    prefix: str
    event_type: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportSettings:
    """``state`` holds inbox, staging, waiting, committing, archive, quarantine, receipts and the
    ledger, on one file system. ``zone_keys`` are files with private keys, in hex, for carriers
    encrypted to this zone. ``checkpoint`` are the settings of the recorder that makes and anchors
    a checkpoint after an import. A checkpoint older than ``warn_age_sec`` gives a warning.
    ``max_inbox_bytes`` and ``max_quarantine_bytes`` are quotas; ``reserve_bytes`` of the file
    system stay free. ``batch_bags`` of the media are copied to the inbox at a time.
    """

    state: Path
    zone_keys: tuple[Path, ...]
    limits: BundleLimits
    max_inbox_bytes: int
    max_quarantine_bytes: int
    reserve_bytes: int
    batch_bags: int
    workers: int
    scan: tuple[str, ...]
    scan_timeout_sec: int
    checkpoint: Path | None
    warn_age_sec: int | None
    approvals: tuple[ApprovalRule, ...]
    exclusions: tuple[ExclusionRule, ...]

    @property
    def max_carrier_bytes(self) -> int:
        """The limit on disk: a single data volume may have the maximum number of parity volumes."""
        return self.limits.max_bytes * (1 + MAX_PARITY)


def import_settings(table: Table, whole: Table) -> ImportSettings:
    settings = ImportSettings(
        state=table.path("state", "import"),
        zone_keys=table.paths("zone_keys"),
        limits=BundleLimits(
            max_bytes=table.number(
                "max_bundle_bytes", IMPORT_BUNDLE_BYTES, least=1, most=_MOST_BYTES
            ),
            max_events=table.number(
                "max_bundle_events", IMPORT_BUNDLE_EVENTS, least=1, most=_MOST_EVENTS
            ),
        ),
        max_inbox_bytes=_bytes(table, "max_inbox_bytes", DEFAULT_INBOX_BYTES),
        max_quarantine_bytes=_bytes(table, "max_quarantine_bytes", DEFAULT_QUARANTINE_BYTES),
        reserve_bytes=_bytes(table, "reserve_bytes", DEFAULT_RESERVE_BYTES),
        batch_bags=table.number("batch_bags", DEFAULT_BATCH_BAGS, least=1, most=_MOST_BAGS),
        workers=table.number("workers", 1, least=1, most=_MOST_WORKERS),
        scan=table.texts("scan"),
        scan_timeout_sec=table.number("scan_timeout_sec", 300, least=1, most=_LONGEST_SCAN_SEC),
        checkpoint=table.path("checkpoint", None),
        warn_age_sec=_days(table, "warn_age_days"),
        approvals=tuple(_approval(table) for table in whole.tables("approvals")),
        exclusions=tuple(_exclusion(table) for table in whole.tables("exclusions")),
    )
    table.done()
    return settings


def _bytes(table: Table, key: str, default: int) -> int:
    return table.number(key, default, least=0, most=_MOST_BYTES)


def _days(table: Table, key: str) -> int | None:
    return table.number(key, least=0, most=_MOST_DAYS) * _DAY_SEC if table.has(key) else None


def _approval(table: Table) -> ApprovalRule:
    rule = ApprovalRule(
        prefix=str(table.text("prefix")),
        needed=table.number("needed", least=1, most=_MOST_APPROVERS),
        approvers=table.keys("approvers"),
    )
    table.done()
    if rule.needed > len(rule.approvers):
        table.refuse("needed", rule.needed, f"only {len(rule.approvers)} approvers are named")
    return rule


def _exclusion(table: Table) -> ExclusionRule:
    rule = ExclusionRule(
        prefix=str(table.text("prefix")),
        event_type=str(table.text("event_type")),
        reason=str(table.text("reason")),
    )
    table.done()
    return rule


class BridgeZone(Enum):
    """The side of a bridge: ONLINE exports, without any feedback; OFFLINE imports."""

    ONLINE = "online"
    OFFLINE = "offline"

    @property
    def audit_log(self) -> str:
        return ONLINE_LOG if self is BridgeZone.ONLINE else OFFLINE_LOG


@dataclass(frozen=True, slots=True, kw_only=True)
class IdentitySettings:
    """An identity: its client directory, its principal for reads, its capability for writes."""

    client: Path
    passphrase_file: Path | None
    principal: str | None
    capability: Path | None


@dataclass(frozen=True, slots=True)
class ReaderKeys:
    """A client directory whose keystore is read without its lock, and never used to sign."""

    client: Path
    passphrase_file: Path | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class BridgeSettings:
    """``audit_reader`` is the card that audit entries are sealed to.

    ``reader`` online opens what is exported, so that bodies can be disclosed to the other zone;
    offline it reads what was imported, for status, reconciliation and rebuilding the ledger.
    ``reader_keys`` is a keystore with the private keys of the card that the zone's events are
    sealed to, used by every reader of this side. ``import_recorder`` records an event of this zone
    for each imported bundle.
    """

    zone: BridgeZone
    name: str
    hub: HubConfig
    bridge: IdentitySettings
    audit: IdentitySettings
    audit_reader: Path
    reader: IdentitySettings | None
    trust: Path
    streams: BridgeStreamMap
    exporting: ExportSettings | None
    importing: ImportSettings | None
    reader_keys: ReaderKeys | None = None
    import_recorder: IdentitySettings | None = None


def load(path: Path) -> BridgeSettings:
    """Read ``bridge.toml`` or a zone's file; relative paths are relative to its directory."""
    return read_settings_file(
        path, lambda document: parse(document, path.absolute().parent), "docs/bridge.example.toml"
    )


def parse(document: dict[str, Any], folder: Path) -> BridgeSettings:
    if is_zone(document):
        table = Table(bridge_part(document), "bridge", folder)
    else:
        table = Table(document, "", folder)
    zone = BridgeZone(table.choice("zone", [member.value for member in BridgeZone]))
    hub, audit = _hub(table.table("hub")), table.table("audit")
    reader = table.table("reader")
    settings = BridgeSettings(
        zone=zone,
        name=_name(table),
        hub=hub,
        bridge=_identity(table.table("bridge")),
        audit_reader=audit.path("reader"),
        audit=_identity(audit),
        reader=_identity(reader) if table.has("reader") else None,
        trust=table.path("trust", "trust"),
        streams=_streams(table, zone, hub),
        exporting=export_settings(table.table("export")) if zone is BridgeZone.ONLINE else None,
        importing=import_settings(table.table("import"), table)
        if zone is BridgeZone.OFFLINE
        else None,
        reader_keys=_reader_keys(table),
        import_recorder=_import_recorder(table, zone),
    )
    table.done()
    _verify_identities(settings)
    return settings


def _name(table: Table) -> str:
    name = str(table.text("name"))
    if not _NAME.fullmatch(name):
        table.refuse("name", name, "expected up to 40 of a-z, 0-9, '.' and '-'")
    return name


def _hub(table: Table) -> HubConfig:
    config = HubConfig(url=table.url("url"), hub_id=table.key("hub_id"), ca=table.path("ca", None))
    table.done()
    return config


def _identity(table: Table) -> IdentitySettings:
    settings = IdentitySettings(
        client=table.path("client"),
        passphrase_file=table.path("passphrase_file", None),
        principal=table.text("principal", None),
        capability=table.path("capability", None),
    )
    table.done()
    return settings


def _import_recorder(table: Table, zone: BridgeZone) -> IdentitySettings | None:
    if zone is not BridgeZone.OFFLINE or not table.has("import_recorder"):
        return None
    return _identity(table.table("import_recorder"))


def _reader_keys(table: Table) -> ReaderKeys | None:
    passphrase_file = table.path("reader_keys_passphrase_file", None)
    client = table.path("reader_keys", None)
    return None if client is None else ReaderKeys(client, passphrase_file)


def _streams(table: Table, zone: BridgeZone, hub: HubConfig) -> BridgeStreamMap:
    """The routes. Online the source is this zone's hub; offline each stream names its hub."""
    routes = []
    for stream in table.tables("streams"):
        source = str(stream.text("source"))
        source_hub = hub.hub_id if zone is BridgeZone.ONLINE else stream.key("hub_id")
        routes.append(
            StreamRoute(source_hub, source, str(stream.text("target", default_target(source))))
        )
        stream.done()
    if not routes:
        raise BadSettings("expected at least one [[streams]], got none")
    return BridgeStreamMap(routes)


def _verify_identities(settings: BridgeSettings) -> None:
    """Refuse an identity with two roles, whose rights would add up."""
    identities = {
        "bridge": settings.bridge,
        "audit": settings.audit,
        "reader": settings.reader,
        "import_recorder": settings.import_recorder,
    }
    seen: dict[Path, str] = {}
    for section, identity in identities.items():
        if identity is None:
            continue
        other = seen.setdefault(identity.client, section)
        if other != section:
            raise BadSettings(
                f"[{other}] and [{section}] have the same client {identity.client}; "
                "each must be an identity of its own"
            )
