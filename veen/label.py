"""Streams, profiles, and the labels derived from hub, stream and epoch (spec 2, 3.2, 12).

An application names a stream by text; a hub orders messages by label. A message names its profile:
the algorithms, the length of an epoch and the padding.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar, Final

from veen.digest import h, ht, u64be
from veen.errors import Malformed
from veen.wire.cbor import UINT_MAX
from veen.wire.objects import WireMap

MAX_NAME: Final = 255
"""Code points in a name."""
_CACHED: Final = 4_096
"""The number of derived identifiers in memory: every message needs those of its stream."""
_ID_IN_HEX: Final = re.compile(r"[0-9a-fA-F]{64}")
# Fixed for ever. str.isprintable() depends on the Unicode tables of a Python version, and a name
# that is valid for one must not be malformed for another (ADR 0061). Code points that Unicode has
# not assigned yet are allowed, so that later tables change nothing.
REFUSED: Final = (
    (0x0000, 0x001F),  # C0 controls
    (0x007F, 0x00A0),  # DEL, C1 controls, no-break space
    (0x00AD, 0x00AD),  # soft hyphen
    (0x0600, 0x0605),  # Arabic number signs
    (0x061C, 0x061C),  # Arabic letter mark
    (0x06DD, 0x06DD),  # Arabic end of ayah
    (0x070F, 0x070F),  # Syriac abbreviation mark
    (0x0890, 0x0891),  # Arabic pound and piastre marks
    (0x08E2, 0x08E2),  # Arabic disputed end of ayah
    (0x1680, 0x1680),  # Ogham space
    (0x180E, 0x180E),  # Mongolian vowel separator
    (0x2000, 0x200F),  # spaces, zero width characters, directional marks
    (0x2028, 0x202F),  # line and paragraph separators, directional overrides, narrow space
    (0x205F, 0x206F),  # mathematical space, invisible operators, directional isolates
    (0x3000, 0x3000),  # ideographic space
    (0xD800, 0xF8FF),  # surrogates, private use
    (0xFDD0, 0xFDEF),  # noncharacters
    (0xFEFF, 0xFEFF),  # byte order mark
    (0xFFF0, 0xFFFB),  # specials, interlinear annotation
    (0x110BD, 0x110BD),  # Kaithi number sign
    (0x110CD, 0x110CD),  # Kaithi number sign above
    (0x13430, 0x1343F),  # Egyptian hieroglyph format controls
    (0x1BCA0, 0x1BCA3),  # shorthand format controls
    (0x1D173, 0x1D17A),  # musical format controls
    (0xE0000, 0xE007F),  # tags
    (0xF0000, 0x10FFFF),  # private use
    *((plane << 16 | 0xFFFE, plane << 16 | 0xFFFF) for plane in range(17)),  # noncharacters
)
"""Ranges of code points not allowed in stream names, both ends included."""
_NAME: Final = re.compile(
    f"[^{''.join(f'{chr(first)}-{chr(last)}' for first, last in REFUSED)}]{{1,{MAX_NAME}}}"
)


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
        return _profile_id(self)

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
                raise Malformed(f"profile: unsupported {name} {getattr(self, name)!r}")


DEFAULT_PROFILE = Profile()


@lru_cache(_CACHED)
def _profile_id(profile: Profile) -> bytes:
    return ht("veen/profile", profile.encode())


def hub_id(first_hub_pk: bytes) -> bytes:
    """The permanent name of a hub, which does not change with its keys."""
    return ht("veen/hub-id", first_hub_pk)


@lru_cache(_CACHED)
def routing_key(hub: bytes) -> bytes:
    return ht("veen/routing_key", hub)


@lru_cache(_CACHED)
def derive_label(routing: bytes, stream: bytes, epoch: int) -> bytes:
    return ht("veen/label", routing, stream, u64be(epoch))


@dataclass(frozen=True, slots=True)
class EpochLabels:
    """The labels of one stream on one hub, epoch by epoch."""

    routing_key: bytes
    stream_id: bytes
    profile: Profile

    def at(self, epoch: int) -> bytes:
        return derive_label(self.routing_key, self.stream_id, epoch)

    def accepted(self, hub_ts: int, max_epoch_skew_sec: int) -> dict[bytes, int]:
        """Every label a hub may admit at ``hub_ts``, with its epoch (spec 12)."""
        return {self.at(epoch): epoch for epoch in self.profile.epochs(hub_ts, max_epoch_skew_sec)}


def is_name(text: str) -> bool:
    """Whether a stream can have this name; the same in every Python version."""
    return _NAME.fullmatch(text) is not None


@lru_cache(_CACHED)
def stream_id(name: str) -> bytes:
    """H of the name; 64 hex digits are the identifier itself."""
    if _ID_IN_HEX.fullmatch(name):
        return bytes.fromhex(name)
    return h(name.encode())
