"""Configuration files: strict TOML tables, and the single file of a zone, ``veen.toml``.

A ``Table`` is read key by key; an unknown key is refused. ``hub_part``, ``recorder_part`` and
``bridge_part`` give each service its part of a zone's file, with the settings that all share.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, Never, TypeVar

from veen.errors import VeenError

_KEY_BYTES: Final = 32
_LAST_PORT: Final = 65_535
_REQUIRED: Final = object()
T = TypeVar("T")
VARIABLE: Final = "VEEN_ZONE"
"""The environment variable that names the ``veen.toml`` of a process's zone."""
PARTS: Final = ("hub", "recorder", "bridge", "storage", "spark", "airflow", "dags")
_OF_ALL: Final = ("zone", "hub_id", "hub_data")
# Only the file of a zone has one of these at its top level.
_MARKS: Final = ("recorder", "storage", "spark", "airflow", "dags")
AIRFLOW_LISTEN: Final = "127.0.0.1:8081"


class BadSettings(VeenError):
    """An invalid configuration."""


def is_address(text: str) -> bool:
    """Whether a text is HOST:PORT with a fixed port."""
    host, _, port = text.rpartition(":")
    return bool(host) and port.isascii() and port.isdigit() and 0 < int(port) <= _LAST_PORT


class Table:
    """A table of a configuration; ``name`` is for errors, ``folder`` the base of paths."""

    def __init__(self, content: Any, name: str, folder: Path) -> None:
        self.name = name
        self._folder = folder
        self._known: list[str] = []
        if type(content) is not dict:
            raise BadSettings(f"{name or 'the file'} = {content!r}: expected a table")
        self._content = content

    def refuse(self, key: str, value: object, expected: str) -> Never:
        raise BadSettings(f"{self._called(key)} = {value!r}: {expected}")

    def has(self, key: str) -> bool:
        return key in self._content

    def names(self) -> tuple[str, ...]:
        """All keys, for a table with arbitrary keys."""
        return tuple(self._content)

    def text(self, key: str, default: Any = _REQUIRED) -> Any:
        value = self._take(key, default)
        if value is default:
            return default
        if type(value) is not str or not value:
            self.refuse(key, value, "expected a text that is not empty")
        return value

    def number(self, key: str, default: Any = _REQUIRED, *, least: int, most: int) -> int:
        value = self._take(key, default)
        if type(value) is not int or not least <= value <= most:
            self.refuse(key, value, f"expected a whole number from {least} to {most}")
        return int(value)

    def flag(self, key: str, *, default: bool) -> bool:
        value = self._take(key, default)
        if type(value) is not bool:
            self.refuse(key, value, "expected true or false")
        return value

    def choice(self, key: str, allowed: Sequence[str], default: Any = _REQUIRED) -> str:
        value = self._take(key, default)
        if value not in allowed:
            self.refuse(key, value, "expected " + " or ".join(repr(option) for option in allowed))
        return str(value)

    def path(self, key: str, default: Any = _REQUIRED) -> Any:
        """A path, relative to the folder of the configuration file."""
        value = self.text(key, default)
        return None if value is None else self._folder / value

    def paths(self, key: str) -> tuple[Path, ...]:
        return tuple(self._folder / text for text in self.texts(key))

    def texts(self, key: str, default: Any = ()) -> tuple[str, ...]:
        """A list of distinct texts that are not empty."""
        values = self._list(key, default)
        for value in values:
            if type(value) is not str or not value:
                self.refuse(key, value, "expected a text that is not empty")
            if values.count(value) > 1:
                self.refuse(key, value, "expected each value once")
        return tuple(values)

    def key(self, key: str, default: Any = _REQUIRED) -> Any:
        """32 bytes as 64 hex digits."""
        value = self._take(key, default)
        return default if value is default else self._hex32(key, value)

    def keys(self, key: str, default: Any = ()) -> tuple[bytes, ...]:
        keys = tuple(self._hex32(key, value) for value in self._list(key, default))
        for value in keys:
            if keys.count(value) > 1:
                self.refuse(key, value.hex(), "expected each principal once")
        return keys

    def address(self, key: str, default: str) -> str:
        value = str(self.text(key, default))
        if not is_address(value):
            self.refuse(key, value, "expected an address and a port, like 127.0.0.1:8090")
        return value

    def url(self, key: str, default: Any = _REQUIRED) -> Any:
        value = self.text(key, default)
        if value is not default and not value.startswith(("http://", "https://")):
            self.refuse(key, value, "expected a URL that starts with http:// or https://")
        return value

    def table(self, key: str) -> Table:
        """The table of that name, or an empty one."""
        return Table(self._take(key, {}), self._called(key), self._folder)

    def tables(self, key: str) -> list[Table]:
        contents = self._list(key, ())
        return [
            Table(content, f"{self._called(key)}[{number}]", self._folder)
            for number, content in enumerate(contents, 1)
        ]

    def done(self) -> None:
        """Raise BadSettings for keys that were not read."""
        unknown = sorted(set(self._content) - set(self._known))
        if unknown:
            known = ", ".join(sorted(self._known))
            raise BadSettings(
                f"{self._called(unknown[0])} = {self._content[unknown[0]]!r}: "
                f"unknown key; known keys: {known}"
            )

    def _take(self, key: str, default: Any) -> Any:
        self._known.append(key)
        if key not in self._content and default is _REQUIRED:
            raise BadSettings(f"{self._called(key)} is missing; add it to the settings")
        return self._content.get(key, default)

    def _list(self, key: str, default: Any) -> list[Any]:
        values = self._take(key, default)
        if values is default and default is not _REQUIRED:
            return list(default)
        if type(values) is not list:
            self.refuse(key, values, "expected a list")
        return list(values)

    def _hex32(self, key: str, value: Any) -> bytes:
        try:
            decoded = bytes.fromhex(value)
        except (TypeError, ValueError):
            decoded = b""
        if len(decoded) != _KEY_BYTES:
            self.refuse(key, value, "expected 64 hex digits")
        return decoded

    def _called(self, key: str) -> str:
        return f"{self.name}.{key}" if self.name else key


def read_settings_file(path: Path, parse: Callable[[dict[str, Any]], T], example: str) -> T:
    """Read a TOML file and parse it; ``example`` is the sample file that errors name."""
    try:
        document = tomllib.loads(path.read_text())
    except OSError as error:
        raise BadSettings(f"{path}: {error.strerror}; see {example}") from error
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise BadSettings(f"{path}: not TOML: {error}") from error
    try:
        return parse(document)
    except BadSettings as error:
        raise BadSettings(f"{path}: {error}") from error


@dataclass(frozen=True, slots=True, kw_only=True)
class HubConfig:
    """The hub of this zone; ``ca`` is a private certificate authority for https."""

    url: str
    hub_id: bytes
    ca: Path | None


def is_zone(document: dict[str, Any]) -> bool:
    return any(mark in document for mark in _MARKS)


def refuse_unknown(document: dict[str, Any]) -> None:
    known = (*_OF_ALL, *PARTS)
    for key in sorted(set(document) - set(known)):
        raise BadSettings(f"{key} = {document[key]!r}: unknown key; known keys: {known}")
    for key in PARTS:
        if type(document.get(key, {})) is not dict:
            raise BadSettings(f"{key} = {document[key]!r}: expected a table")


def hub_part(document: dict[str, Any]) -> dict[str, Any]:
    return _part(document, "hub")


def recorder_part(document: dict[str, Any]) -> dict[str, Any]:
    """The content of a ``recorder.toml``, without [objects], which is [storage] in a zone."""
    part = _part(document, "recorder")
    for key, place in (("zone", "zone, at the top"), ("objects", "[storage]")):
        if key in part:
            raise BadSettings(f"recorder.{key}: in the file of a zone this is {place}")
    query = _table(part, "query", "recorder")
    if "master" in document.get("spark", {}):
        query.setdefault("spark_master", document["spark"]["master"])
    if "conf" in document.get("spark", {}):
        query.setdefault("spark_conf", document["spark"]["conf"])
    if "airflow" in document:
        query.setdefault("airflow_url", airflow_url(document))
    hub = _hub_of(document, _table(part, "hub", "recorder"))
    return part | {"zone": document.get("zone"), "hub": hub, "query": query}


def spark_conf(table: Table) -> Mapping[str, str]:
    """Settings of Spark, which are passed to jobs unchanged."""
    for key in table.names():
        if not key.startswith("spark."):
            table.refuse(key, table.text(key), "expected a key that begins with spark.")
    return MappingProxyType({key: str(table.text(key)) for key in table.names()})


def bridge_part(document: dict[str, Any]) -> dict[str, Any]:
    part = _part(document, "bridge")
    part.setdefault("name", document.get("zone"))
    return part | {"hub": _hub_of(document, _table(part, "hub", "bridge"))}


def airflow_url(document: dict[str, Any]) -> str:
    listen = document.get("airflow", {}).get("listen", AIRFLOW_LISTEN)
    return f"http://{listen}"


def _part(document: dict[str, Any], name: str) -> dict[str, Any]:
    refuse_unknown(document)
    if name not in document:
        raise BadSettings(f"[{name}] is missing: this zone has no {name}")
    return dict(document[name])


def _table(part: dict[str, Any], key: str, name: str) -> dict[str, Any]:
    value = part.get(key, {})
    if type(value) is not dict:
        raise BadSettings(f"{name}.{key} = {value!r}: expected a table")
    return dict(value)


def _hub_of(document: dict[str, Any], table: dict[str, Any]) -> dict[str, Any]:
    """The hub's URL and id: from the part itself, or else from the zone."""
    if "url" not in table and "hub" in document:
        table["url"] = _hub_url(document["hub"])
    if "hub_id" not in table and "hub_id" in document:
        table["hub_id"] = document["hub_id"]
    return table


def _hub_url(hub: dict[str, Any]) -> str:
    host, _, port = str(hub.get("listen", "127.0.0.1:8080")).rpartition(":")
    scheme = "https" if "tls_cert" in hub else "http"
    return f"{scheme}://{'127.0.0.1' if host == '0.0.0.0' else host}:{port}"  # noqa: S104
