"""The hub's identity as the edge reads it: again whenever the key was rotated (spec 8.4)."""

from __future__ import annotations

from hub.storage.datadir import DataDir
from hub.storage.identity import read_signed_identity
from veen import layout
from veen.errors import Untrusted
from veen.hub_identity import HubIdentity
from veen.identity_file import SignedIdentity


class IdentityFile:
    def __init__(self, datadir: DataDir) -> None:
        self._datadir = datadir
        self._seen = self._mtime()
        self._signed = read_signed_identity(datadir)

    def current(self) -> HubIdentity:
        return self.signed().identity

    def signed(self) -> SignedIdentity:
        seen = self._mtime()
        if seen != self._seen:
            self._reload(seen)
        return self._signed

    def _reload(self, seen: int) -> None:
        """While its documents are being replaced they do not match; the old ones then hold."""
        try:
            self._signed = read_signed_identity(self._datadir)
        except Untrusted:
            return
        self._seen = seen

    def _mtime(self) -> int:
        return self._datadir.file(layout.IDENTITY).stat().st_mtime_ns
