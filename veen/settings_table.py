"""One table of a configuration file, taken key by key: what is left over is refused."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, Never

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
        found = self._take(key, default)
        if found is default:
            return default
        if type(found) is not str or not found:
            self.refuse(key, found, "a text that is not empty is due")
        return found

    def number(self, key: str, default: Any = _REQUIRED, *, least: int, most: int) -> int:
        found = self._take(key, default)
        if type(found) is not int or not least <= found <= most:
            self.refuse(key, found, f"a whole number from {least} to {most} is due")
        return int(found)

    def flag(self, key: str, *, default: bool) -> bool:
        found = self._take(key, default)
        if type(found) is not bool:
            self.refuse(key, found, "true or false is due")
        return found

    def choice(self, key: str, allowed: Sequence[str], default: Any = _REQUIRED) -> str:
        found = self._take(key, default)
        if found not in allowed:
            self.refuse(key, found, "it is " + " or ".join(repr(one) for one in allowed))
        return str(found)

    def path(self, key: str, default: Any = _REQUIRED) -> Any:
        """A path; a relative one begins at the folder of the configuration file."""
        found = self.text(key, default)
        return None if found is None else self._folder / found

    def paths(self, key: str) -> tuple[Path, ...]:
        return tuple(self._folder / one for one in self.texts(key))

    def texts(self, key: str, default: Any = ()) -> tuple[str, ...]:
        """Texts that are not empty, each once."""
        found = self._list(key, default)
        for one in found:
            if type(one) is not str or not one:
                self.refuse(key, one, "a text that is not empty is due")
            if found.count(one) > 1:
                self.refuse(key, one, "it stands there twice")
        return tuple(found)

    def key(self, key: str, default: Any = _REQUIRED) -> Any:
        """32 bytes that the file gives as 64 hex digits."""
        found = self._take(key, default)
        return default if found is default else self._hex32(key, found)

    def keys(self, key: str, default: Any = ()) -> tuple[bytes, ...]:
        found = tuple(self._hex32(key, one) for one in self._list(key, default))
        for one in found:
            if found.count(one) > 1:
                self.refuse(key, one.hex(), "this principal stands there twice")
        return found

    def address(self, key: str, default: str) -> str:
        found = str(self.text(key, default))
        if not is_address(found):
            self.refuse(key, found, "an address and a port from 1 on are due, like 127.0.0.1:8090")
        return found

    def url(self, key: str, default: Any = _REQUIRED) -> Any:
        found = self.text(key, default)
        if found is not default and not found.startswith(("http://", "https://")):
            self.refuse(key, found, "a URL that starts with http:// or https:// is due")
        return found

    def table(self, key: str) -> Table:
        """The table of that name; an empty one where there is none."""
        return Table(self._take(key, {}), self._called(key), self._folder)

    def tables(self, key: str) -> list[Table]:
        found = self._list(key, ())
        return [
            Table(one, f"{self._called(key)}[{number}]", self._folder)
            for number, one in enumerate(found, 1)
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
        found = self._take(key, default)
        if found is default and default is not _REQUIRED:
            return list(default)
        if type(found) is not list:
            self.refuse(key, found, "a list is due")
        return list(found)

    def _hex32(self, key: str, value: Any) -> bytes:
        try:
            found = bytes.fromhex(value)
        except (TypeError, ValueError):
            found = b""
        if len(found) != _KEY_BYTES:
            self.refuse(key, value, "64 hex digits are due")
        return found

    def _called(self, key: str) -> str:
        return f"{self.name}.{key}" if self.name else key
