"""The settings of a recorder: one frozen object, built once from a TOML file (SDR0 3.2.2)."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, NamedTuple

from recorder.settings_anchor import (
    AnchorSettings,
    CheckpointSettings,
    anchor_settings,
    checkpoint_settings,
)
from recorder.settings_query import QuerySettings, query_settings
from recorder.stream_map import (
    DEFAULT_PAYLOAD_BYTES,
    LONG_TERM,
    MAX_PAYLOAD_BYTES,
    NAMESPACE,
    RecorderStream,
    StreamMap,
)
from recorder.zone_acting import ActingSettings, acting_settings
from veen import settings_file
from veen.objects.settings import BadStoreSettings, StoreSettings, settings_of
from veen.record_event import MAX_NAME_BYTES
from veen.settings_table import Table
from veen.zone_file import is_zone, recorder_part

DEFAULT_PATH: Final = Path("recorder.toml")
_ZONE: Final = re.compile(r"[a-z0-9][a-z0-9._-]{0,62}")
_STREAM: Final = re.compile(r"record(/[A-Za-z0-9._-]+)+")


class Opener(NamedTuple):
    """A client directory whose keystore is only read, and where its passphrase is."""

    client: Path
    passphrase_file: Path | None


@dataclass(frozen=True, slots=True, kw_only=True)
class HubSettings:
    """``client`` is the recorder's own identity; ``reader`` the card that events are sealed to.

    ``reader_keys`` is the keystore behind that card, which every process of the zone that opens
    events reads without locking it; without one, each opens with the keys of its own identity.
    """

    url: str
    hub_id: bytes
    client: Path
    passphrase_file: Path | None
    ca: Path | None
    principal: str | None
    reader: Path | None
    reader_keys: Path | None = None
    reader_keys_passphrase_file: Path | None = None

    @property
    def opener(self) -> Opener:
        """The keystore that jobs open events with, which need no hub: of the reader, else ours."""
        if self.reader_keys is not None:
            return Opener(self.reader_keys, self.reader_keys_passphrase_file)
        return Opener(self.client, self.passphrase_file)


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """``acting`` is who acts in the commands of a zone's operators; None outside of a zone."""

    zone: str
    hub: HubSettings
    streams: StreamMap
    checkpoint: CheckpointSettings
    anchor: AnchorSettings
    objects: StoreSettings | None
    index: Path
    query: QuerySettings
    acting: ActingSettings | None = None

    def profile_id(self) -> bytes:
        return self.streams.profile_id()


def load(path: Path) -> Settings:
    """The settings of ``recorder.toml`` or of a zone's file; relative paths begin at its folder."""
    return settings_file.read(
        path, lambda one: parse(one, path.absolute().parent), "docs/recorder.example.toml"
    )


def parse(document: dict[str, Any], folder: Path) -> Settings:
    if is_zone(document):
        storage = Table(document["storage"], "storage", folder) if "storage" in document else None
        found = _settings(Table(recorder_part(document), "recorder", folder), storage)
        acting = acting_settings(Table(document.get("dags", {}), "dags", folder).table("acting"))
        return replace(found, acting=acting)
    table = Table(document, "", folder)
    objects = table.table("objects")
    return _settings(table, objects if table.has("objects") else None)


def _settings(table: Table, objects: Table | None) -> Settings:
    streams = tuple(_stream(one) for one in table.tables("streams"))
    found = Settings(
        zone=_zone(table),
        hub=_hub(table.table("hub")),
        streams=StreamMap(streams, table.keys("admins")),
        checkpoint=checkpoint_settings(table.table("checkpoint")),
        anchor=anchor_settings(table.table("anchor")),
        objects=None if objects is None else store_of(objects),
        index=_index(table.table("index")),
        query=query_settings(table.table("query")),
    )
    table.done()
    return found


def _zone(table: Table) -> str:
    found = str(table.text("zone"))
    if not _ZONE.fullmatch(found):
        table.refuse("zone", found, "up to 63 of a-z, 0-9, '.', '_' and '-' are due")
    return found


def _hub(table: Table) -> HubSettings:
    found = HubSettings(
        url=table.url("url"),
        hub_id=table.key("hub_id"),
        client=table.path("client"),
        passphrase_file=table.path("passphrase_file", None),
        ca=table.path("ca", None),
        principal=table.text("principal", None),
        reader=table.path("reader", None),
        reader_keys=table.path("reader_keys", None),
        reader_keys_passphrase_file=table.path("reader_keys_passphrase_file", None),
    )
    table.done()
    return found


def _stream(table: Table) -> RecorderStream:
    found = RecorderStream(
        name=_stream_name(table),
        event_types=table.texts("event_types"),
        max_payload_bytes=table.number(
            "max_payload_bytes", DEFAULT_PAYLOAD_BYTES, least=1, most=MAX_PAYLOAD_BYTES
        ),
        producers=table.keys("producers"),
        retention=table.choice("retention", (LONG_TERM,), LONG_TERM),
    )
    table.done()
    if not found.event_types:
        table.refuse("event_types", [], "a stream holds one event type at least")
    for kind in found.event_types:
        if len(kind.encode()) > MAX_NAME_BYTES:
            table.refuse("event_types", kind, f"at most {MAX_NAME_BYTES} bytes are due")
    return found


def _stream_name(table: Table) -> str:
    found = str(table.text("name"))
    if not _STREAM.fullmatch(found):
        table.refuse(
            "name",
            found,
            f"a recorder stream begins with {NAMESPACE} and has A-Z, a-z, 0-9, '.', '_', '-' "
            "between its slashes",
        )
    return found


def store_of(table: Table) -> StoreSettings:
    """The store that [objects], or [storage] of a zone, names."""
    url = table.text("url")
    try:
        found = settings_of(
            url,
            endpoint=table.text("endpoint", None),
            region=table.text("region", "us-east-1"),
            addressing=table.text("addressing", "auto"),
            accept_overwriting_store=table.flag("accept_overwriting_store", default=False),
        )
    except BadStoreSettings as error:
        table.refuse("url", url, str(error))
    table.done()
    return found


def _index(table: Table) -> Path:
    found: Path = table.path("path", "index")
    table.done()
    return found
