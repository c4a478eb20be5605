"""A JSON object read member by member: each is there, of its type, and nothing else is."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

from recorder import timestamp
from veen.errors import Malformed

_HEX: Final = frozenset("0123456789abcdef")
_HASH_DIGITS: Final = 64
_MAX_NAME: Final = 255


@dataclass(frozen=True, slots=True)
class Shape:
    """What is asked for is returned valid, or Malformed names the place."""

    place: str
    members: dict[str, Any]

    @classmethod
    def of(cls, value: Any, place: str, keys: Iterable[str]) -> Shape:
        if not isinstance(value, dict) or set(value) != set(keys):
            raise Malformed(f"{place} is not an object of {', '.join(sorted(keys))}")
        return cls(place, value)

    def value(self, key: str) -> Any:
        return self.members[key]

    def number(self, key: str) -> int:
        found = self.members[key]
        if type(found) is not int or found < 0:
            raise self._malformed(key, "a whole number")
        return found

    def name(self, key: str) -> str:
        found = self.members[key]
        if not isinstance(found, str) or not 1 <= len(found) <= _MAX_NAME:
            raise self._malformed(key, f"a text of 1 to {_MAX_NAME} characters")
        return found

    def octets(self, key: str) -> bytes:
        found = self.members[key]
        if not isinstance(found, str) or len(found) % 2 or set(found) - _HEX:
            raise self._malformed(key, "lowercase hex")
        return bytes.fromhex(found)

    def hash(self, key: str) -> str:
        if len(self.octets(key)) * 2 != _HASH_DIGITS:
            raise self._malformed(key, "a hash in lowercase hex")
        return str(self.members[key])

    def time(self, key: str) -> str:
        found = self.name(key)
        if timestamp.render(timestamp.parse(found)) != found:
            raise self._malformed(key, "a timestamp with three decimals")
        return found

    def array(self, key: str) -> list[Any]:
        found = self.members[key]
        if not isinstance(found, list):
            raise self._malformed(key, "an array")
        return found

    def _malformed(self, key: str, due: str) -> Malformed:
        return Malformed(f"{self.place}: {key} must be {due}")
