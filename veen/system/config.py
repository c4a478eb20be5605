"""One table of a configuration file, taken key by key: what is left over is refused.

A configuration file as it is read: whatever is wrong with it, the error names the file.

The one file of a zone, ``veen.toml``: which table is whose, and what is said only once.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final, Never, TypeVar

from veen.errors import VeenError

_KEY_BYTES: Final = 32
_LAST_PORT: Final = 65_535
_REQUIRED: Final = object()


class BadSettings(VeenError):
    """A configuration that cannot be run, and where it is wrong."""


def is_address(text: str) -> bool:
    """A host and the port that others find it at; 0, any free one, is none."""
    host, _, port = text.rpartition(":")
    return bool(host) and port.isascii() and port.isdigit() and 0 < int(port) <= _LAST_PORT


class Table:
    """``name`` is how an error calls it; ``folder`` is where relative paths begin."""

    def __init__(self, content: Any, name: str, folder: Path) -> None:
        self.name = name
        self._folder = folder
        self._known: list[str] = []
        if type(content) is not dict:
            raise BadSettings(f"{name or 'the file'} = {content!r}: a table is due")
        self._content = content

    def refuse(self, key: str, value: object, due: str) -> Never:
        raise BadSettings(f"{self._called(key)} = {value!r}: {due}")

    def has(self, key: str) -> bool:
        return key in self._content

    def names(self) -> tuple[str, ...]:
        """Every key there is, for a table whose keys are free."""
        return tuple(self._content)

    def text(self, key: str, default: Any = _REQUIRED) -> Any:
        result = self._take(key, default)
        if result is default:
            return default
        if type(result) is not str or not result:
            self.refuse(key, result, "a text that is not empty is due")
        return result

    def number(self, key: str, default: Any = _REQUIRED, *, least: int, most: int) -> int:
        result = self._take(key, default)
        if type(result) is not int or not least <= result <= most:
            self.refuse(key, result, f"a whole number from {least} to {most} is due")
        return int(result)

    def flag(self, key: str, *, default: bool) -> bool:
        result = self._take(key, default)
        if type(result) is not bool:
            self.refuse(key, result, "true or false is due")
        return result

    def choice(self, key: str, allowed: Sequence[str], default: Any = _REQUIRED) -> str:
        result = self._take(key, default)
        if result not in allowed:
            self.refuse(key, result, "it is " + " or ".join(repr(item) for item in allowed))
        return str(result)

    def path(self, key: str, default: Any = _REQUIRED) -> Any:
        """A path; a relative one begins at the folder of the configuration file."""
        result = self.text(key, default)
        return None if result is None else self._folder / result

    def paths(self, key: str) -> tuple[Path, ...]:
        return tuple(self._folder / text for text in self.texts(key))

    def texts(self, key: str, default: Any = ()) -> tuple[str, ...]:
        """Texts that are not empty, each once."""
        result = self._list(key, default)
        for item in result:
            if type(item) is not str or not item:
                self.refuse(key, item, "a text that is not empty is due")
            if result.count(item) > 1:
                self.refuse(key, item, "it stands there twice")
        return tuple(result)

    def key(self, key: str, default: Any = _REQUIRED) -> Any:
        """32 bytes that the file gives as 64 hex digits."""
        result = self._take(key, default)
        return default if result is default else self._hex32(key, result)

    def keys(self, key: str, default: Any = ()) -> tuple[bytes, ...]:
        result = tuple(self._hex32(key, item) for item in self._list(key, default))
        for item in result:
            if result.count(item) > 1:
                self.refuse(key, item.hex(), "this principal stands there twice")
        return result

    def address(self, key: str, default: str) -> str:
        result = str(self.text(key, default))
        if not is_address(result):
            self.refuse(key, result, "an address and a port from 1 on are due, like 127.0.0.1:8090")
        return result

    def url(self, key: str, default: Any = _REQUIRED) -> Any:
        result = self.text(key, default)
        if result is not default and not result.startswith(("http://", "https://")):
            self.refuse(key, result, "a URL that starts with http:// or https:// is due")
        return result

    def table(self, key: str) -> Table:
        """The table of that name; an empty one where there is none."""
        return Table(self._take(key, {}), self._called(key), self._folder)

    def tables(self, key: str) -> list[Table]:
        result = self._list(key, ())
        return [
            Table(item, f"{self._called(key)}[{number}]", self._folder)
            for number, item in enumerate(result, 1)
        ]

    def done(self) -> None:
        """Refuse whatever nobody has asked for."""
        unknown = sorted(set(self._content) - set(self._known))
        if unknown:
            known = ", ".join(sorted(self._known))
            raise BadSettings(
                f"{self._called(unknown[0])} = {self._content[unknown[0]]!r}: "
                f"there is no such key; known are {known}"
            )

    def _take(self, key: str, default: Any) -> Any:
        self._known.append(key)
        if key not in self._content and default is _REQUIRED:
            raise BadSettings(f"{self._called(key)} is missing; it must be given")
        return self._content.get(key, default)

    def _list(self, key: str, default: Any) -> list[Any]:
        result = self._take(key, default)
        if result is default and default is not _REQUIRED:
            return list(default)
        if type(result) is not list:
            self.refuse(key, result, "a list is due")
        return list(result)

    def _hex32(self, key: str, value: Any) -> bytes:
        try:
            result = bytes.fromhex(value)
        except (TypeError, ValueError):
            result = b""
        if len(result) != _KEY_BYTES:
            self.refuse(key, value, "64 hex digits are due")
        return result

    def _called(self, key: str) -> str:
        return f"{self.name}.{key}" if self.name else key


T = TypeVar("T")


def read_settings_file(path: Path, parse: Callable[[dict[str, Any]], T], example: str) -> T:
    """What ``parse`` makes of the document; ``example`` shows what such a file looks like."""
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


VARIABLE: Final = "VEEN_ZONE"
"""The environment variable that names the ``veen.toml`` of a process's zone."""

PARTS: Final = ("hub", "recorder", "bridge", "storage", "spark", "airflow", "dags")
_OF_ALL: Final = ("zone", "hub_id", "hub_data")
# A file of a hub, a recorder or a bridge alone has none of these at its top.
_MARKS: Final = ("recorder", "storage", "spark", "airflow", "dags")


def is_zone(document: dict[str, Any]) -> bool:
    return any(mark in document for mark in _MARKS)


def refuse_unknown(document: dict[str, Any]) -> None:
    known = (*_OF_ALL, *PARTS)
    for key in sorted(set(document) - set(known)):
        raise BadSettings(f"{key} = {document[key]!r}: there is no such key; known are {known}")
    for key in PARTS:
        if type(document.get(key, {})) is not dict:
            raise BadSettings(f"{key} = {document[key]!r}: a table is due")


def hub_part(document: dict[str, Any]) -> dict[str, Any]:
    return _part(document, "hub")


def recorder_part(document: dict[str, Any]) -> dict[str, Any]:
    """What ``recorder.toml`` would say, but for [objects], which is [storage] here."""
    part = _part(document, "recorder")
    for key, place in (("zone", "zone, at the top"), ("objects", "[storage]")):
        if key in part:
            raise BadSettings(f"recorder.{key}: in the file of a zone this is {place}")
    query = _table(part, "query", "recorder")
    if "master" in document.get("spark", {}):
        query.setdefault("spark_master", document["spark"]["master"])
    if "airflow" in document:
        query.setdefault("airflow_url", airflow_url(document))
    hub = _hub_of(document, _table(part, "hub", "recorder"))
    return part | {"zone": document.get("zone"), "hub": hub, "query": query}


def bridge_part(document: dict[str, Any]) -> dict[str, Any]:
    part = _part(document, "bridge")
    part.setdefault("name", document.get("zone"))
    return part | {"hub": _hub_of(document, _table(part, "hub", "bridge"))}


def airflow_url(document: dict[str, Any]) -> str:
    listen = document.get("airflow", {}).get("listen", AIRFLOW_LISTEN)
    return f"http://{listen}"


AIRFLOW_LISTEN: Final = "127.0.0.1:8081"


def _part(document: dict[str, Any], name: str) -> dict[str, Any]:
    refuse_unknown(document)
    if name not in document:
        raise BadSettings(f"[{name}] is missing: this zone has no {name}")
    return dict(document[name])


def _table(part: dict[str, Any], key: str, name: str) -> dict[str, Any]:
    value = part.get(key, {})
    if type(value) is not dict:
        raise BadSettings(f"{name}.{key} = {value!r}: a table is due")
    return dict(value)


def _hub_of(document: dict[str, Any], table: dict[str, Any]) -> dict[str, Any]:
    """Where the hub is and who it is, as the zone says unless the part itself does."""
    if "url" not in table and "hub" in document:
        table["url"] = _hub_url(document["hub"])
    if "hub_id" not in table and "hub_id" in document:
        table["hub_id"] = document["hub_id"]
    return table


def _hub_url(hub: dict[str, Any]) -> str:
    host, _, port = str(hub.get("listen", "127.0.0.1:8080")).rpartition(":")
    scheme = "https" if "tls_cert" in hub else "http"
    return f"{scheme}://{'127.0.0.1' if host == '0.0.0.0' else host}:{port}"  # noqa: S104
