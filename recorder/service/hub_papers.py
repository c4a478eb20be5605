"""The hub's identity as it last signed it, kept for proof packages, which are made without it."""

from __future__ import annotations

from pathlib import Path

from veen import cbor, durable
from veen.client.trust import followed
from veen.errors import VeenError
from veen.hub_identity import HubIdentity


class NoPapers(VeenError):
    """The runner has not met the hub yet."""


class HubPapers:
    def __init__(self, path: Path) -> None:
        self._path = path
        self._kept = b""

    def keep(self, identity: HubIdentity, signature: bytes) -> None:
        """Remember who the hub is, once that has been verified; an older identity is Untrusted."""
        content = cbor.dump([identity.encode(), signature])
        if content != self._kept:
            if self._path.exists():
                followed(self.read()[0], identity)
            durable.write(self._path, content)
            self._kept = content

    def read(self) -> tuple[HubIdentity, bytes]:
        """The identity and the signature of its current key."""
        try:
            raw = self._path.read_bytes()
        except FileNotFoundError as error:
            raise NoPapers("the hub has not been met yet; ask again later") from error
        identity, signature = cbor.decode(raw)
        return HubIdentity.decode(identity), signature
