"""Who may ask the query service, for which streams, and whose results they see (Query API 7.1)."""

from __future__ import annotations

import hmac
from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase
from typing import Final

from recorder.service.refusal import ErrorCode, Refusal
from recorder.settings_query import AUDITOR, SUBMITTER, QueryPrincipal, refuse_unmapped
from veen.digest import h
from veen.keystore import card_file
from veen.keystore.directory import ClientDir

_NONE: Final = b""


class Principals:
    def __init__(self, principals: Iterable[QueryPrincipal]) -> None:
        self._all = tuple(principals)
        refuse_unmapped(self._all)
        self._identities = {one.name: _identity(one) for one in self._all}

    def identity(self, principal: QueryPrincipal) -> bytes:
        """The VEEN identity of a principal: its own key, or that of its client directory."""
        return self._identities[principal.name]

    def by_name(self, name: str) -> QueryPrincipal | None:
        return next((one for one in self._all if one.name == name), None)

    def key_of(self, name: str) -> bytes | None:
        found = self.by_name(name)
        return found.public_key if found else None

    def by_token(self, token: str) -> QueryPrincipal | None:
        """Every principal is compared, so that time does not tell which one came close."""
        digest = h(token.encode("utf-8", "surrogateescape"))
        matching = [
            one for one in self._all if hmac.compare_digest(one.token_sha256 or _NONE, digest)
        ]
        return matching[0] if matching else None


def _identity(principal: QueryPrincipal) -> bytes:
    if principal.public_key is not None:
        return principal.public_key
    assert principal.client is not None  # noqa: S101 - refused before
    return card_file.read(ClientDir(principal.client).card).client_id


def sees(principal: QueryPrincipal, submitter: str) -> bool:
    """Whether the queries and results of a submitter are shown to a principal."""
    return principal.name == submitter or AUDITOR in principal.roles


def verify_scope(principal: QueryPrincipal, scope: Sequence[str], known: frozenset[str]) -> None:
    """Refuse unless every stream is there and the principal's; both have one answer."""
    if SUBMITTER not in principal.roles:
        raise Refusal(ErrorCode.FORBIDDEN_SCOPE, "your roles do not submit queries")
    for stream in scope:
        if stream not in known or not _may_read(principal, stream):
            raise Refusal(
                ErrorCode.FORBIDDEN_SCOPE,
                f"{stream!r} is no stream that you may query; name streams one by one",
            )


def _may_read(principal: QueryPrincipal, stream: str) -> bool:
    return any(fnmatchcase(stream, pattern) for pattern in principal.scopes)
