"""The limit registry: bounds that may be lowered but never raised (spec 3.5, 14)."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Final

from veen.errors import VeenError

MAX_PROOF_PATH: Final = 64
MAX_CAP_CHAIN: Final = 8
ENTRY_HEADER_BYTES: Final = 82
MAX_RECEIPT_BYTES: Final = 256

_MAXIMA: Final = {
    "max_msg_bytes": 1_048_576,
    "max_hdr_bytes": 16_384,
    "max_body_bytes": 1_048_320,
    "max_attachments_per_msg": 1_024,
    # Not in the specification: what a bucket can count without overflow.
    "max_cap_rate_per_sec": 2**32,
    "max_cap_rate_burst": 2**32,
}


class BadLimit(VeenError, ValueError):
    """A limit outside what the specification allows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    max_msg_bytes: int = 1_048_576
    max_hdr_bytes: int = 16_384
    max_body_bytes: int = 1_048_320
    max_attachments_per_msg: int = 1_024
    max_attachment_bytes: int = 1_048_320
    max_chunk_bytes: int = 67_108_864
    max_checkpoint_interval: int = 16_384
    max_cap_rate_per_sec: int = 100_000
    max_cap_rate_burst: int = 1_000_000
    max_epoch_skew_sec: int = 300

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            least = 0 if field.name == "max_epoch_skew_sec" else 1
            if type(value) is not int or value < least:
                raise BadLimit(
                    f"{field.name} = {value!r}: expected a whole number of at least {least}"
                )
            if value > _MAXIMA.get(field.name, value):
                raise BadLimit(f"{field.name} = {value}: expected at most {_MAXIMA[field.name]}")
        if self.max_chunk_bytes < self.largest_entry:
            raise BadLimit(
                f"max_chunk_bytes: expected at least {self.largest_entry}, the size of the "
                "largest entry"
            )

    @property
    def largest_entry(self) -> int:
        return ENTRY_HEADER_BYTES + self.max_msg_bytes + MAX_RECEIPT_BYTES
