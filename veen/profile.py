"""The cryptographic profile that every message names (spec 3.2)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from veen.cbor import UINT_MAX
from veen.digest import ht
from veen.errors import Malformed
from veen.wire import WireMap


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile(WireMap):
    aead: str = "xchacha20poly1305"
    kdf: str = "hkdf-sha256"
    sig: str = "ed25519"
    dh: str = "x25519"
    hpke_suite: str = "X25519-HKDF-SHA256-CHACHA20POLY1305"
    epoch_sec: int = 0
    pad_block: int = 0
    mmr_hash: str = "sha256"

    ALGORITHMS: ClassVar = ("aead", "kdf", "sig", "dh", "hpke_suite", "mmr_hash")

    def profile_id(self) -> bytes:
        return ht("veen/profile", self.encode())

    def epoch(self, unix_time: int) -> int:
        return unix_time // self.epoch_sec if self.epoch_sec else 0

    def epochs(self, unix_time: int, skew_sec: int) -> range:
        """The epochs within the skew window around a time; epoch 0 alone without epochs."""
        if not self.epoch_sec:
            return range(1)
        current, skew = self.epoch(unix_time), skew_sec // self.epoch_sec
        return range(max(0, current - skew), min(current + skew, UINT_MAX) + 1)

    def rule(self) -> None:
        for name in self.ALGORITHMS:
            if getattr(self, name) != getattr(DEFAULT_PROFILE, name):
                raise Malformed(f"profile names {getattr(self, name)!r} as {name}")


DEFAULT_PROFILE = Profile()
