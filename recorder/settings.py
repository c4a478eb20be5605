"""The settings of a recorder: one frozen object, built once from a TOML file (SDR0 3.2.2).

They cover streams, checkpoints and anchors, the query service, and the principals that act for the
DAGs of a zone.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, NamedTuple

from recorder.acting import ActingSettings, acting_settings
from recorder.stream_map import (
    DEFAULT_PAYLOAD_BYTES,
    LONG_TERM,
    MAX_PAYLOAD_BYTES,
    NAMESPACE,
    RecorderStream,
    RecorderStreamMap,
)
from veen.events import MAX_NAME_BYTES
from veen.objects.port import StoreLocation, StoreSettings
from veen.system.config import (
    BadSettings,
    HubConfig,
    Table,
    is_zone,
    read_settings_file,
    recorder_part,
    spark_conf,
)
from veen.system.log_file import DEFAULT_BACKUPS, DEFAULT_MAX_BYTES

_KINDS: Final = ("file", "rfc3161", "none")
_YEAR_OF_MINUTES: Final = 527_040
_MANY: Final = 1_000_000_000
SUBMITTER: Final = "submitter"
AUDITOR: Final = "auditor"
_ROLES: Final = (SUBMITTER, AUDITOR)
DEFAULT_PATH: Final = Path("recorder.toml")
_ZONE: Final = re.compile(r"[a-z0-9][a-z0-9._-]{0,62}")
_STREAM: Final = re.compile(r"record(/[A-Za-z0-9._-]+)+")


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointSettings:
    """When a checkpoint is due, in minutes or events; 0 disables a measure.

    ``path`` is the directory of checkpoints and anchors.
    """

    path: Path
    every_minutes: int
    every_events: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AnchorSettings:
    """``path`` is the ledger of kind "file"; the tsa_* settings are for kind "rfc3161"."""

    kind: str
    path: Path | None
    tsa_url: str | None
    tsa_certificates: tuple[Path, ...]
    tsa_policy: str | None
    every_checkpoints: int
    every_minutes: int


def checkpoint_settings(table: Table) -> CheckpointSettings:
    settings = CheckpointSettings(
        path=table.path("path", "checkpoints"),
        every_minutes=table.number("every_minutes", 5, least=0, most=_YEAR_OF_MINUTES),
        every_events=table.number("every_events", 10_000, least=0, most=_MANY),
    )
    table.done()
    if not settings.every_minutes and not settings.every_events:
        table.refuse("every_minutes", 0, "with every_events = 0 no checkpoint would ever be made")
    return settings


def anchor_settings(table: Table) -> AnchorSettings:
    kind = table.choice("kind", _KINDS, "file")
    _verify_kind(table, kind)
    settings = AnchorSettings(
        kind=kind,
        path=table.path("path", "anchors.ledger" if kind == "file" else None),
        tsa_url=table.url("tsa_url", None),
        tsa_certificates=table.paths("tsa_certificates"),
        tsa_policy=table.text("tsa_policy", None),
        every_checkpoints=table.number("every_checkpoints", 1, least=0, most=_MANY),
        every_minutes=table.number("every_minutes", 0, least=0, most=_YEAR_OF_MINUTES),
    )
    table.done()
    if kind == "rfc3161" and (settings.tsa_url is None or not settings.tsa_certificates):
        table.refuse("kind", kind, "it needs tsa_url and tsa_certificates")
    if kind != "none" and not settings.every_checkpoints and not settings.every_minutes:
        table.refuse("every_checkpoints", 0, "with every_minutes = 0 nothing is ever anchored")
    return settings


def _verify_kind(table: Table, kind: str) -> None:
    tsa = (("tsa_url", "rfc3161"), ("tsa_certificates", "rfc3161"), ("tsa_policy", "rfc3161"))
    for key, owner in (("path", "file"), *tsa):
        if kind != owner and table.has(key):
            table.refuse("kind", kind, f"{key} goes with kind = {owner!r} only")


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryPrincipal:
    """A principal of the query service: known by a token or a key; ``scopes`` are patterns of
    stream names.

    Its VEEN identity is ``public_key``, or the client_id of the directory ``client``.
    """

    name: str
    subject_id: str
    token_sha256: bytes | None
    public_key: bytes | None
    scopes: tuple[str, ...]
    roles: tuple[str, ...]
    client: Path | None
    passphrase_file: Path | None


@dataclass(frozen=True, slots=True, kw_only=True)
class QuerySettings:
    """``engine`` "inline" never starts Spark; "auto" does beyond ``row_budget``.

    ``spark_conf`` are settings of Spark for the jobs that the service submits itself. A query that
    Spark has not answered within ``spark_timeout_sec`` fails. ``request_timeout_sec``
    is longer than a submission waits for its receipt and its result. ``body_timeout_sec`` limits
    how long a request may take to send its body. ``keep_results_days`` None keeps rows for ever.
    """

    listen: str
    workers: int
    threads: int
    verifiers: int
    row_budget: int
    max_rows: int
    max_page: int
    max_descriptor_bytes: int
    request_timeout_sec: int
    body_timeout_sec: int
    results: Path
    keep_results_days: int | None
    engine: str
    spark_master: str
    spark_conf: Mapping[str, str]
    spark_timeout_sec: int
    airflow_url: str | None
    tls_cert: Path | None
    tls_key: Path | None
    tls_client_ca: Path | None
    principals: tuple[QueryPrincipal, ...]
    log_max_bytes: int
    log_backups: int


def query_settings(table: Table) -> QuerySettings:
    principals = tuple(_principal(principal) for principal in table.tables("principals"))
    settings = QuerySettings(
        listen=table.address("listen", "127.0.0.1:8090"),
        workers=table.number("workers", 2, least=1, most=256),
        threads=table.number("threads", 8, least=1, most=1_024),
        verifiers=table.number("verifiers", 2, least=0, most=64),
        row_budget=table.number("row_budget", 100_000, least=1, most=_MANY),
        max_rows=table.number("max_rows", 1_000_000, least=1, most=_MANY),
        max_page=table.number("max_page", 10_000, least=1, most=1_000_000),
        max_descriptor_bytes=table.number(
            "max_descriptor_bytes", 65_536, least=256, most=1_000_000
        ),
        request_timeout_sec=table.number("request_timeout_sec", 30, least=1, most=3_600),
        body_timeout_sec=table.number("body_timeout_sec", 3, least=1, most=3_600),
        results=table.path("results", "results"),
        keep_results_days=table.number("keep_results_days", 0, least=0, most=36_500) or None,
        engine=table.choice("engine", ("auto", "inline"), "auto"),
        spark_master=table.text("spark_master", "local[2]"),
        spark_conf=spark_conf(table.table("spark_conf")),
        spark_timeout_sec=table.number("spark_timeout_sec", 3_600, least=1, most=2_592_000),
        airflow_url=table.url("airflow_url", None),
        tls_cert=table.path("tls_cert", None),
        tls_key=table.path("tls_key", None),
        tls_client_ca=table.path("tls_client_ca", None),
        principals=principals,
        log_max_bytes=table.number("log_max_bytes", DEFAULT_MAX_BYTES, least=0, most=_MANY),
        log_backups=table.number("log_backups", DEFAULT_BACKUPS, least=0, most=1_000),
    )
    table.done()
    _verify_tls(table, settings)
    _verify_unshared(table, principals)
    return settings


def _principal(table: Table) -> QueryPrincipal:
    name = table.text("name")
    principal = QueryPrincipal(
        name=name,
        subject_id=table.text("subject_id", name),
        token_sha256=table.key("token_sha256", None),
        public_key=table.key("public_key", None),
        scopes=table.texts("scopes"),
        roles=table.texts("roles", (SUBMITTER,)),
        client=table.path("client", None),
        passphrase_file=table.path("passphrase_file", None),
    )
    table.done()
    for role in principal.roles:
        if role not in _ROLES:
            table.refuse("roles", role, f"expected one of {', '.join(_ROLES)}")
    if principal.token_sha256 is None and principal.public_key is None:
        table.refuse("name", name, "expected token_sha256, public_key or both")
    if not principal.scopes:
        table.refuse("scopes", [], "expected a list of stream patterns, like record/app/*")
    return principal


def refuse_unmapped(principals: Sequence[QueryPrincipal]) -> None:
    """Refuse principals without a VEEN client identity (Query API 7.1).

    Not checked when settings are loaded, since recording and checkpoints work without it.
    """
    for principal in principals:
        if principal.public_key is None and principal.client is None:
            raise BadSettings(
                f"[[query.principals]] name = {principal.name!r}: it has no VEEN identity to audit "
                "its "
                "accesses under, expected public_key or client; make an identity with veen keygen "
                '--out DIR, and add public_key = "HEX" with the client_id that veen id show '
                '--client DIR prints, or client = "DIR"'
            )


def _verify_tls(table: Table, settings: QuerySettings) -> None:
    if (settings.tls_cert is None) != (settings.tls_key is None):
        key = "tls_key" if settings.tls_cert is None else "tls_cert"
        table.refuse(
            key,
            str(settings.tls_key or settings.tls_cert),
            "tls_cert and tls_key go together",
        )
    if settings.tls_client_ca is not None and settings.tls_cert is None:
        table.refuse("tls_client_ca", str(settings.tls_client_ca), "it needs tls_cert and tls_key")


def _verify_unshared(table: Table, principals: Sequence[QueryPrincipal]) -> None:
    for kind in ("name", "token_sha256", "public_key", "client"):
        seen: dict[object, str] = {}
        for principal in principals:
            value = getattr(principal, kind)
            if value is not None and value in seen:
                shown = value.hex() if isinstance(value, bytes) else str(value)
                table.refuse(
                    f"principals.{kind}", shown, f"{seen[value]} and {principal.name} both have it"
                )
            seen[value] = principal.name


class OpenerConfig(NamedTuple):
    """A client directory whose keystore is only read, and its passphrase file."""

    client: Path
    passphrase_file: Path | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RecorderHubConfig(HubConfig):
    """The hub, and who acts there: ``client`` is the recorder's own identity, ``reader`` the card
    that events are sealed to.

    ``reader_keys`` is the keystore of that card, which processes of the zone read without locking
    it; without it, each process uses the keys of its own identity.
    """

    client: Path
    passphrase_file: Path | None
    principal: str | None
    reader: Path | None
    reader_keys: Path | None = None
    reader_keys_passphrase_file: Path | None = None

    @property
    def opener(self) -> OpenerConfig:
        """The keystore for jobs that decrypt events without a hub: the reader's, or else our
        own."""
        if self.reader_keys is not None:
            return OpenerConfig(self.reader_keys, self.reader_keys_passphrase_file)
        return OpenerConfig(self.client, self.passphrase_file)


@dataclass(frozen=True, slots=True, kw_only=True)
class RecorderSettings:
    """All settings.

    ``acting`` is the identity of a zone's operator commands, None outside of a zone.
    """

    zone: str
    hub: RecorderHubConfig
    streams: RecorderStreamMap
    checkpoint: CheckpointSettings
    anchor: AnchorSettings
    objects: StoreSettings | None
    index: Path
    query: QuerySettings
    acting: ActingSettings | None = None

    def profile_id(self) -> bytes:
        return self.streams.profile_id()


def load(path: Path) -> RecorderSettings:
    """Load ``recorder.toml`` or a zone's file; relative paths start at its directory."""
    return read_settings_file(
        path, lambda document: parse(document, path.absolute().parent), "docs/recorder.example.toml"
    )


def parse(document: dict[str, Any], folder: Path) -> RecorderSettings:
    if is_zone(document):
        storage = Table(document["storage"], "storage", folder) if "storage" in document else None
        settings = _settings(Table(recorder_part(document), "recorder", folder), storage)
        acting = acting_settings(Table(document.get("dags", {}), "dags", folder).table("acting"))
        return replace(settings, acting=acting)
    table = Table(document, "", folder)
    objects = table.table("objects")
    return _settings(table, objects if table.has("objects") else None)


def _settings(table: Table, objects: Table | None) -> RecorderSettings:
    streams = tuple(_stream(stream) for stream in table.tables("streams"))
    settings = RecorderSettings(
        zone=_zone(table),
        hub=_hub(table.table("hub")),
        streams=RecorderStreamMap(streams, table.keys("admins")),
        checkpoint=checkpoint_settings(table.table("checkpoint")),
        anchor=anchor_settings(table.table("anchor")),
        objects=None if objects is None else StoreLocation.read(objects).settings(),
        index=_index(table.table("index")),
        query=query_settings(table.table("query")),
    )
    table.done()
    return settings


def _zone(table: Table) -> str:
    zone = str(table.text("zone"))
    if not _ZONE.fullmatch(zone):
        table.refuse("zone", zone, "expected up to 63 of a-z, 0-9, '.', '_' and '-'")
    return zone


def _hub(table: Table) -> RecorderHubConfig:
    config = RecorderHubConfig(
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
    return config


def _stream(table: Table) -> RecorderStream:
    stream = RecorderStream(
        name=_stream_name(table),
        event_types=table.texts("event_types"),
        max_payload_bytes=table.number(
            "max_payload_bytes", DEFAULT_PAYLOAD_BYTES, least=1, most=MAX_PAYLOAD_BYTES
        ),
        producers=table.keys("producers"),
        retention=table.choice("retention", (LONG_TERM,), LONG_TERM),
    )
    table.done()
    if not stream.event_types:
        table.refuse("event_types", [], "expected at least one event type")
    for kind in stream.event_types:
        if len(kind.encode()) > MAX_NAME_BYTES:
            table.refuse("event_types", kind, f"expected at most {MAX_NAME_BYTES} bytes")
    return stream


def _stream_name(table: Table) -> str:
    name = str(table.text("name"))
    if not _STREAM.fullmatch(name):
        table.refuse(
            "name",
            name,
            f"expected {NAMESPACE} followed by A-Z, a-z, 0-9, '.', '_', '-' between slashes",
        )
    return name


def _index(table: Table) -> Path:
    path: Path = table.path("path", "index")
    table.done()
    return path
