"""The read policy of a hub: principals, their roles, and the most that a role may be granted.

Writing is governed by capability tokens. The policy says who reads, and it bounds the streams for
which a principal's own keys may be given a capability.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from fnmatch import fnmatchcase
from typing import Any

from veen.errors import VeenError

_KEYS = {"name", "role", "public_key", "token_sha256", "read", "write"}


class BadPolicy(VeenError):
    """A policy that grants what its roles must not hold, or contradicts itself."""


class Role(Enum):
    """Each role with the streams it may read at most, and write at most."""

    RECORDER_PRODUCER = ("recorder_producer", (), ("record/",))
    RECORDER_ADMIN = ("recorder_admin", ("",), ("record/infrastructure/",))
    BRIDGE_ONLINE = ("bridge_online", ("export/", "record/", "bridge/online/log"), ())
    BRIDGE_OFFLINE = ("bridge_offline", (), ("import/",))
    AUDIT_WRITER = ("audit_writer", (), ("bridge/online/log", "bridge/offline/log"))
    QUERY = ("query", ("record/", "import/"), ("record/query/",))

    def __init__(self, title: str, read: tuple[str, ...], write: tuple[str, ...]) -> None:
        self.title = title
        self.may_read = read
        self.may_write = write

    @property
    def manages(self) -> bool:
        """Whether the role registers streams and asks for checkpoints."""
        return self is Role.RECORDER_ADMIN

    @property
    def reads_recorder_checkpoints(self) -> bool:
        """Whether the role may see the names, sizes and roots of all product streams."""
        return self.manages or self in (Role.QUERY, Role.BRIDGE_ONLINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyPrincipal:
    name: str
    role: Role
    public_key: bytes | None
    token_sha256: bytes | None
    read: tuple[str, ...]
    write: tuple[str, ...]

    def may_read(self, stream: str) -> bool:
        return any(fnmatchcase(stream, pattern) for pattern in self.read)

    def may_write(self, stream: str) -> bool:
        return any(fnmatchcase(stream, pattern) for pattern in self.write)


@dataclass(frozen=True, slots=True)
class Policy:
    principals: tuple[PolicyPrincipal, ...] = ()

    def by_key(self, public_key: bytes) -> PolicyPrincipal | None:
        return next(
            (principal for principal in self.principals if principal.public_key == public_key), None
        )

    def by_name(self, name: str) -> PolicyPrincipal | None:
        return next((principal for principal in self.principals if principal.name == name), None)

    @classmethod
    def parse(cls, tables: Iterable[dict[str, Any]]) -> Policy:
        principals = tuple(_principal(table) for table in tables)
        for kind in ("name", "public_key", "token_sha256"):
            _verify_unique(principals, kind)
        return cls(principals)


_ROLES = {role.title: role for role in Role}


def _principal(table: dict[str, Any]) -> PolicyPrincipal:
    name = table.get("name")
    if not isinstance(name, str) or not name:
        raise BadPolicy("[[principals]]: expected a name, got none")
    unknown = sorted(set(table) - _KEYS)
    if unknown:
        raise BadPolicy(f"principal {name}: unknown key {unknown[0]!r}")
    if table.get("role") not in _ROLES:
        raise BadPolicy(f"principal {name}: expected a role of {sorted(_ROLES)}")
    principal = PolicyPrincipal(
        name=name,
        role=_ROLES[table["role"]],
        public_key=_hex32(name, "public_key", table.get("public_key")),
        token_sha256=_hex32(name, "token_sha256", table.get("token_sha256")),
        read=_patterns(name, table.get("read", [])),
        write=_patterns(name, table.get("write", [])),
    )
    _verify_role(principal)
    return principal


def _verify_role(principal: PolicyPrincipal) -> None:
    for verb, patterns, allowed in (
        ("read", principal.read, principal.role.may_read),
        ("write", principal.write, principal.role.may_write),
    ):
        for pattern in patterns:
            if not any(_fixed_part(pattern).startswith(prefix) for prefix in allowed):
                raise BadPolicy(
                    f"principal {principal.name}: role {principal.role.title} must not "
                    f"{verb} {pattern!r}; it may {verb} {list(allowed) or 'nothing'}"
                )
    if principal.public_key is None and principal.token_sha256 is None:
        raise BadPolicy(f"principal {principal.name} has neither public_key nor token_sha256")


def _fixed_part(pattern: str) -> str:
    """The part of a pattern before its first wildcard."""
    return pattern[: min((pattern.find(sign) for sign in "*?[" if sign in pattern), default=None)]


def _verify_unique(principals: tuple[PolicyPrincipal, ...], kind: str) -> None:
    seen: dict[object, str] = {}
    for principal in principals:
        value = getattr(principal, kind)
        if value is not None and value in seen:
            raise BadPolicy(f"principals {seen[value]} and {principal.name} share one {kind}")
        seen[value] = principal.name


def _patterns(name: str, value: Any) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(
        isinstance(pattern, str) and pattern for pattern in value
    ):
        raise BadPolicy(f"principal {name}: expected lists of stream patterns in read and write")
    return tuple(value)


def _hex32(name: str, key: str, value: Any) -> bytes | None:
    if value is None:
        return None
    try:
        decoded = bytes.fromhex(value)
    except (TypeError, ValueError):
        decoded = b""
    if len(decoded) != 32:
        raise BadPolicy(f"principal {name}: {key}: expected 64 hex digits")
    return decoded
