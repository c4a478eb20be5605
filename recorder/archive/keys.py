"""Where each object of an archived hub lives, from its contents alone.

A file that never changes keeps the name it has in the data directory. What changes there - the
identity, indexes, manifests - is kept by its hash, and one head names the latest.
"""

from __future__ import annotations

from dataclasses import dataclass

from veen.layout import SEQ_DIGITS


@dataclass(frozen=True, slots=True)
class HubKeys:
    hub_id: bytes

    @property
    def prefix(self) -> str:
        return f"hubs/{self.hub_id.hex()}/"

    @property
    def head(self) -> str:
        """The name of the head, apart from the keys of objects."""
        return f"hubs/{self.hub_id.hex()}"

    def file(self, name: str) -> str:
        """An immutable file, by its name in the data directory."""
        return f"{self.prefix}{name}"

    def version(self, sha256: bytes) -> str:
        """A document that is replaced as a whole, by the hash of its bytes."""
        return f"{self.prefix}version/{sha256.hex()}"

    def tail(self, label: bytes, start_seq: int, end_seq: int) -> str:
        """The beginning of a chunk that was still open when it was copied."""
        return f"{self.prefix}tail/chunk-{label.hex()}-{_seq(start_seq)}-{_seq(end_seq)}.open"


def _seq(seq: int) -> str:
    return f"{seq:0{SEQ_DIGITS}d}"
