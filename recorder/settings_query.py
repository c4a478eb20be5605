"""The part of the recorder's settings that configures the query service."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from veen.log_file import DEFAULT_BACKUPS, DEFAULT_MAX_BYTES
from veen.settings_table import BadSettings, Table

SUBMITTER: Final = "submitter"
AUDITOR: Final = "auditor"
_ROLES: Final = (SUBMITTER, AUDITOR)
_MANY: Final = 1_000_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryPrincipal:
    """Who may ask: known by a token or a key; ``scopes`` are patterns of stream names.

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

    A query that Spark has not answered within ``spark_timeout_sec`` fails.
    ``request_timeout_sec`` is longer than a submission waits for its receipt and its result.
    ``body_timeout_sec`` is how long a request may keep the service waiting for its bytes.
    ``keep_results_days`` None keeps rows for ever.
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
    spark_timeout_sec: int
    airflow_url: str | None
    tls_cert: Path | None
    tls_key: Path | None
    tls_client_ca: Path | None
    principals: tuple[QueryPrincipal, ...]
    log_max_bytes: int
    log_backups: int


def query_settings(table: Table) -> QuerySettings:
    principals = tuple(_principal(one) for one in table.tables("principals"))
    found = QuerySettings(
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
    _verify_tls(table, found)
    _refuse_shared(table, principals)
    return found


def _principal(table: Table) -> QueryPrincipal:
    name = table.text("name")
    found = QueryPrincipal(
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
    for role in found.roles:
        if role not in _ROLES:
            table.refuse("roles", role, f"a role is one of {', '.join(_ROLES)}")
    if found.token_sha256 is None and found.public_key is None:
        table.refuse("name", name, "a principal has token_sha256, public_key or both")
    if not found.scopes:
        table.refuse("scopes", [], "a list of stream patterns is due, like record/app/*")
    return found


def refuse_unmapped(principals: Sequence[QueryPrincipal]) -> None:
    """Refuse principals that map to no VEEN client identity (Query API 7.1).

    Not while settings are read: whoever records or makes checkpoints by the same file goes on.
    """
    for one in principals:
        if one.public_key is None and one.client is None:
            raise BadSettings(
                f"[[query.principals]] name = {one.name!r}: it has no VEEN identity to audit its "
                "accesses under, expected public_key or client; make an identity with veen keygen "
                '--out DIR, and add public_key = "HEX" with the client_id that veen id show '
                '--client DIR prints, or client = "DIR"'
            )


def _verify_tls(table: Table, found: QuerySettings) -> None:
    if (found.tls_cert is None) != (found.tls_key is None):
        key = "tls_key" if found.tls_cert is None else "tls_cert"
        table.refuse(key, str(found.tls_key or found.tls_cert), "tls_cert and tls_key go together")
    if found.tls_client_ca is not None and found.tls_cert is None:
        table.refuse("tls_client_ca", str(found.tls_client_ca), "it needs tls_cert and tls_key")


def _refuse_shared(table: Table, principals: Sequence[QueryPrincipal]) -> None:
    for kind in ("name", "token_sha256", "public_key", "client"):
        seen: dict[object, str] = {}
        for one in principals:
            value = getattr(one, kind)
            if value is not None and value in seen:
                shown = value.hex() if isinstance(value, bytes) else str(value)
                table.refuse(
                    f"principals.{kind}", shown, f"{seen[value]} and {one.name} both have it"
                )
            seen[value] = one.name
