"""An entry of an audit log of a bridge, and what the entries about bundles have in common
(AGB0 4.6).
"""

from __future__ import annotations

from dataclasses import MISSING, dataclass, fields
from typing import Any, ClassVar, Self, get_type_hints

from veen.errors import Malformed


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditEvent:
    """``operator`` is who ran the command, as they call themselves."""

    KIND: ClassVar[str]
    operator: str

    def document(self) -> dict[str, Any]:
        found = {one.name: getattr(self, one.name) for one in fields(self)}
        return {
            name: value.hex() if isinstance(value, bytes) else value
            for name, value in found.items()
        }

    @classmethod
    def read(cls, document: object) -> Self:
        """An entry of this kind, or Malformed: with its fields, and no others.

        What has a default may be left out: entries of earlier versions do not have it.
        """
        hints = get_type_hints(cls)
        known = {one.name: one.default is MISSING for one in fields(cls)}
        needed = {name for name, is_needed in known.items() if is_needed}
        if type(document) is not dict or not needed <= set(document) <= set(known):
            raise Malformed(f"an entry {cls.KIND} with other fields than it has")
        return cls(**{name: _value(cls, name, document[name], hints[name]) for name in document})

    def subject_id(self) -> str:
        """What an entry is about: a bundle where there is one."""
        bundle_id = getattr(self, "bundle_id", None)
        return f"bundle/{bundle_id.hex()}" if bundle_id else "bridge"


@dataclass(frozen=True, slots=True, kw_only=True)
class OfBundle(AuditEvent):
    """``sha256`` is that of the bundle's bytes."""

    bundle_id: bytes
    sha256: bytes
    source_hub_id: bytes
    stream: str
    from_seq: int
    to_seq: int
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Failed(AuditEvent):
    """A failure can come before anything is known but the bytes."""

    bundle_id: bytes | None = None
    sha256: bytes | None = None
    source_hub_id: bytes | None = None
    stream: str | None = None
    from_seq: int | None = None
    to_seq: int | None = None
    code: str
    told: str
    position: int | None = None
    offset: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FailedImport(Failed):
    """With ``is_claimed`` bundle, hub, stream and range are what the ledger of the carrier says,
    which a trusted exporter has signed; the bundle itself did not get so far.
    """

    is_claimed: bool = False


def _value(kind: type[AuditEvent], name: str, value: Any, hint: Any) -> Any:
    allowed = getattr(hint, "__args__", (hint,))
    if value is None and type(None) in allowed:
        return None
    wanted = allowed[0]
    if wanted is bytes and type(value) is str:
        try:
            found = bytes.fromhex(value)
        except ValueError:
            found = b""
        if len(found) == 32 and found.hex() == value:
            return found
    elif type(value) is wanted and (wanted is not int or value >= 0):
        return value
    raise Malformed(f"an entry {kind.KIND} whose {name} is {value!r}")
