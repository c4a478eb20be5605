"""The settings of a hub: one frozen object, built once from a TOML file (spec 3.5)."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from hub.clock import CLOCK_STEP_LIMIT_SEC
from hub.disk import DiskRules
from hub.policy import BadPolicy, Policy
from hub.storage.retention import BadRetention, Rule, parse_rule, verify_long_term
from veen.errors import Malformed, VeenError
from veen.label import DEFAULT_PROFILE, Profile
from veen.limits import BadLimit, Limits
from veen.log.entry import StreamRecord
from veen.system.config import BadSettings, hub_part, is_address, is_zone
from veen.system.log_file import DEFAULT_BACKUPS, DEFAULT_MAX_BYTES

_PLAIN = {
    "listen": str, "workers": int, "threads": int, "admission": str, "reads": str,
    "queue_limit": int, "request_timeout_sec": int, "body_timeout_sec": int, "max_page_items": int,
    "clock_step_limit_sec": int,
    "disk_reserve_bytes": int, "disk_warn_days": int,
    "tls_cert": str, "tls_key": str, "tls_client_ca": str,
    "log_max_bytes": int, "log_backups": int,
}  # fmt: skip
_TABLES = ("issuers", "streams", "limits", "principals", "retention")


class BadHubSettings(VeenError):
    """A configuration that cannot be run, and where it is wrong."""

    error_code = "BAD_SETTINGS"


@dataclass(frozen=True, slots=True)
class StreamBound:
    """The size limit of the messages of a stream, in addition to the limits of the hub."""

    stream: str
    max_msg_bytes: int

    def __post_init__(self) -> None:
        if self.max_msg_bytes < 1:
            raise BadHubSettings(
                f"stream {self.stream}: max_msg_bytes = {self.max_msg_bytes}, expected a whole "
                "number from 1 up; leave it out for the limit of the hub"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class HubSettings:
    listen: str = "127.0.0.1:8080"
    workers: int = 2
    threads: int = 8
    admission: str = "gated"
    reads: str = "policy"
    issuers: frozenset[bytes] = frozenset()
    streams: tuple[StreamRecord, ...] = ()
    bounds: tuple[StreamBound, ...] = ()
    profiles: tuple[Profile, ...] = (DEFAULT_PROFILE,)
    limits: Limits = field(default_factory=Limits)
    policy: Policy = field(default_factory=Policy)
    retention: tuple[Rule, ...] = ()
    queue_limit: int = 4_096
    request_timeout_sec: int = 30
    body_timeout_sec: int = 3
    max_page_items: int = 1_000
    clock_step_limit_sec: int = CLOCK_STEP_LIMIT_SEC
    disk_reserve_bytes: int = 64 * 1024 * 1024
    disk_warn_days: int = 14
    tls_cert: str | None = None
    tls_key: str | None = None
    tls_client_ca: str | None = None
    log_max_bytes: int = DEFAULT_MAX_BYTES
    log_backups: int = DEFAULT_BACKUPS

    def __post_init__(self) -> None:
        if self.admission not in ("gated", "open"):
            raise BadHubSettings(f"admission = {self.admission!r}: expected 'gated' or 'open'")
        if self.reads not in ("policy", "open"):
            raise BadHubSettings(f"reads = {self.reads!r}: expected 'policy' or 'open'")
        if not is_address(self.listen):
            raise BadHubSettings(
                f"listen = {self.listen!r}: expected an address and a port, like 127.0.0.1:8080"
            )
        self._verify_numbers()
        if (self.tls_cert is None) != (self.tls_key is None):
            raise BadHubSettings("tls_cert and tls_key: expected both or neither")
        for stream in self.streams:
            if stream.profile not in self.profiles:
                raise BadHubSettings(f"stream {stream.name} uses a profile that is not configured")

    def _verify_numbers(self) -> None:
        if self.workers < 1 or self.threads < 1:
            raise BadHubSettings("workers and threads: expected at least 1")
        if self.clock_step_limit_sec < 0:
            raise BadHubSettings(
                f"clock_step_limit_sec = {self.clock_step_limit_sec}: expected seconds, or 0 for "
                "no limit"
            )
        if self.request_timeout_sec < 1 or self.body_timeout_sec < 1:
            raise BadHubSettings("request_timeout_sec and body_timeout_sec: expected at least 1")
        if self.log_max_bytes < 0 or self.log_backups < 0:
            raise BadHubSettings("log_max_bytes and log_backups: expected at least 0")
        _verify_disk(self.disk)

    @property
    def gated(self) -> bool:
        return self.admission == "gated"

    @property
    def disk(self) -> DiskRules:
        return DiskRules(self.disk_reserve_bytes, self.disk_warn_days)

    @property
    def url(self) -> str:
        """The URL of the hub for commands on this host."""
        host, _, port = self.listen.rpartition(":")
        scheme = "https" if self.tls_cert else "http"
        return f"{scheme}://{'127.0.0.1' if host == '0.0.0.0' else host}:{port}"  # noqa: S104


def load(path: Path | None) -> HubSettings:
    """The settings of ``hub.toml`` or of a zone's file, or the defaults.

    An unknown key is refused.
    """
    if path is None:
        return HubSettings()
    try:
        document = tomllib.loads(path.read_text())
        return parse(hub_part(document) if is_zone(document) else document)
    except OSError as error:
        raise BadHubSettings(f"{path}: {error.strerror}") from error
    except (
        tomllib.TOMLDecodeError,
        BadHubSettings,
        BadSettings,
        BadPolicy,
        BadRetention,
        BadLimit,
        Malformed,
    ) as error:
        raise BadHubSettings(f"{path}: {error}") from error


def parse(document: dict[str, Any]) -> HubSettings:
    unknown = sorted(set(document) - set(_PLAIN) - set(_TABLES))
    if unknown:
        raise BadHubSettings(f"unknown key {unknown[0]!r}; known are {sorted([*_PLAIN, *_TABLES])}")
    plain = {
        key: _typed(key, document[key], expected)
        for key, expected in _PLAIN.items()
        if key in document
    }
    streams = tuple(_stream(table) for table in document.get("streams", ()))
    profiles = dict.fromkeys((DEFAULT_PROFILE, *(stream.profile for stream in streams)))
    return HubSettings(
        **plain,
        issuers=frozenset(parse_key("issuers", key_hex) for key_hex in document.get("issuers", ())),
        streams=streams,
        bounds=tuple(_bounds(document.get("streams", ()))),
        profiles=tuple(profiles),
        limits=_limits(document.get("limits", {})),
        policy=Policy.parse(document.get("principals", [])),
        retention=tuple(_rule(table) for table in document.get("retention", ())),
    )


def with_options(settings: HubSettings, options: dict[str, Any]) -> HubSettings:
    """The settings with the options of a command line, which take precedence."""
    return replace(settings, **{key: value for key, value in options.items() if value is not None})


def _stream(table: dict[str, Any]) -> StreamRecord:
    unknown = sorted(set(table) - {"name", "epoch_sec", "pad_block", "max_msg_bytes"})
    if unknown or "name" not in table:
        raise BadHubSettings(
            f"[[streams]]: expected name, epoch_sec, pad_block and max_msg_bytes, got {unknown}"
        )
    profile = Profile(
        epoch_sec=_typed("epoch_sec", table.get("epoch_sec", 0), int),
        pad_block=_typed("pad_block", table.get("pad_block", 0), int),
    )
    record = StreamRecord(name=_typed("name", table["name"], str), profile=profile)
    return StreamRecord.decode(record.encode())


def _bounds(tables: Iterable[dict[str, Any]]) -> Iterator[StreamBound]:
    for table in tables:
        if "max_msg_bytes" in table:
            yield StreamBound(table["name"], _typed("max_msg_bytes", table["max_msg_bytes"], int))


def _rule(table: dict[str, Any]) -> Rule:
    if set(table) != {"streams", "keep_days"}:
        raise BadHubSettings("[[retention]]: expected streams (a pattern) and keep_days")
    rule = parse_rule(_typed("streams", table["streams"], str), table["keep_days"])
    verify_long_term(rule)
    return rule


def _limits(table: dict[str, Any]) -> Limits:
    unknown = sorted(set(table) - {field.name for field in fields(Limits)})
    if unknown:
        raise BadHubSettings(f"[limits]: unknown key {unknown[0]!r}")
    return Limits(**table)


def _verify_disk(rules: DiskRules) -> None:
    for name, value in (
        ("disk_reserve_bytes", rules.reserve_bytes),
        ("disk_warn_days", rules.warn_days),
    ):
        if value < 0:
            raise BadHubSettings(f"{name} = {value}: expected 0 or more")


def parse_key(name: str, value: Any) -> bytes:
    """A public key in hex, from a configuration or a command line."""
    try:
        key = bytes.fromhex(_typed(name, value, str))
    except ValueError:
        key = b""
    if len(key) != 32:
        raise BadHubSettings(f"{name} = {value!r}: expected 64 hex digits")
    return key


def _typed(name: str, value: Any, expected: type) -> Any:
    if type(value) is not expected:
        raise BadHubSettings(f"{name} = {value!r}: expected {expected.__name__}")
    return value
