"""The identity of a hub from its documents, however damaged they are (spec 8.4)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from veen.audit.artefacts import first_difference
from veen.audit.context import Read
from veen.audit.report import AuditFault
from veen.errors import Malformed, Untrusted, VeenError
from veen.hub_identity import HubIdentity, HubKey, journalled_documents, key_id, newest_identity
from veen.label import hub_id
from veen.log import layout
from veen.wire import cbor

JOURNAL: Final = "hub-identity.next"
_UNDATED: Final = "key-map"
_NAMES: Final = (layout.IDENTITY, layout.IDENTITY_SIG, layout.KEY_MAP)


class Nameless(VeenError):
    """A log whose hub cannot be identified."""


@dataclass(slots=True)
class TrustCheck:
    """Reads the identity of a hub and collects the faults of its documents."""

    faults: list[AuditFault] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def read_hub(self, read: Read) -> HubIdentity:
        """The identity to verify signatures with, as far as the documents allow."""
        documents = self._documents(read)
        identity = self._identity(documents)
        mapped = self._key_map(documents, identity)
        if identity is None and mapped is None:
            raise Nameless(
                f"there is no readable {layout.IDENTITY} nor {layout.KEY_MAP}: "
                "restore one of them; no signature can be checked without it"
            )
        if identity is not None and self._is_signed(documents, identity):
            return identity
        known = mapped or [key.hub_pk for key in (identity.hub_keys if identity else ())]
        self.notes.append("signatures were checked against the bare keys, not the times they held")
        return _undated(known)

    def follow(self, own: HubIdentity, known: HubIdentity | None) -> HubIdentity:
        """The newest of the log's own identity and one known from elsewhere.

        The log's own identity alone cannot show that its key has retired since; that is noted.
        """
        if known is None:
            self.notes.append(
                f"unproven identity: {own.described()}, is the log's own; a newer one, in which "
                "that key has retired, may exist"
            )
            return own
        identity = known
        if own.anchoring != _UNDATED:
            try:
                identity = newest_identity(known, own)
            except Untrusted as error:
                what = f"{error} (expected it to agree with {known.described()})"
                self._fault(layout.IDENTITY, 0, what, "IDENTITY")
        self.notes.append(f"judged by {identity.described()}")
        return identity

    def _documents(self, read: Read) -> dict[str, bytes]:
        """The documents, or those of the journal if a crash interrupted a change."""
        raw = read(JOURNAL)
        try:
            pending = None if raw is None else journalled_documents(raw)
        except Malformed as error:
            self._fault(JOURNAL, 0, str(error), "IDENTITY")
            pending = None
        if pending is not None:
            self.notes.append(f"{JOURNAL}: a change of identity that the next start will finish")
            return dict(zip(_NAMES, pending, strict=True))
        documents = {name: read(name) for name in _NAMES}
        for name, document in documents.items():
            if document is None:
                self._fault(name, 0, "the file is missing", "MISSING")
        return {name: document for name, document in documents.items() if document is not None}

    def _identity(self, documents: dict[str, bytes]) -> HubIdentity | None:
        if layout.IDENTITY not in documents:
            return None
        try:
            return HubIdentity.decode(documents[layout.IDENTITY])
        except Malformed as error:
            self._fault(layout.IDENTITY, 0, str(error), "IDENTITY")
            return None

    def _key_map(
        self, documents: dict[str, bytes], identity: HubIdentity | None
    ) -> list[bytes] | None:
        """The public keys of the key map, if each matches its key_id."""
        raw = documents.get(layout.KEY_MAP)
        if raw is None:
            return None
        keys = _parse_key_map(raw)
        if keys is None or (identity and keys != [key.hub_pk for key in identity.hub_keys]):
            expected = [[key.key_id, key.hub_pk] for key in identity.hub_keys] if identity else []
            at = first_difference(raw, cbor.dump(expected)) if identity else 0
            self._fault(layout.KEY_MAP, at, "is not the map of the hub's keys", "IDENTITY")
        return keys

    def _is_signed(self, documents: dict[str, bytes], identity: HubIdentity) -> bool:
        signature = documents.get(layout.IDENTITY_SIG)
        if signature is None:
            return False
        try:
            identity.verify(signature)
        except Untrusted as error:
            what = f"{error} ({layout.IDENTITY} or its signature was changed)"
            self._fault(layout.IDENTITY_SIG, 0, what, "IDENTITY")
            return False
        return True

    def _fault(self, name: str, at: int, what: str, code: str) -> None:
        self.faults.append(AuditFault(name, at, None, what, code))


def _parse_key_map(raw: bytes) -> list[bytes] | None:
    try:
        pairs = [(bytes(name), bytes(public)) for name, public in cbor.decode(raw)]
    except (Malformed, TypeError, ValueError):
        return None
    whole = bool(pairs) and all(name == key_id(public) for name, public in pairs)
    return [public for _, public in pairs] if whole else None


def _undated(keys: Iterable[bytes]) -> HubIdentity:
    hub_keys = tuple(HubKey(key_id=key_id(key), hub_pk=key, valid_from=0) for key in keys)
    return HubIdentity(hub_id=hub_id(hub_keys[0].hub_pk), hub_keys=hub_keys, anchoring=_UNDATED)
