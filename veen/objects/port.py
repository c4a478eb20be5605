"""The port to object storage: immutable objects by key, and heads that move by compare-and-swap.

Keys and head names follow ``veen.objects.key``; a name outside of it raises InvalidKey.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

from veen.errors import Untrusted, VeenError

MAX_OBJECT_BYTES: Final = 5 * 2**30
"""What one put may carry: the most an S3 store takes in a single request."""


class StoreError(VeenError):
    """Whatever goes wrong between us and the store.

    But for a failed sync of a directory: that is ``durable.SyncFailed``, and the process must end.
    """


class ObjectMissing(StoreError, LookupError):
    """No object has this key."""


class ObjectConflict(StoreError):
    """The key already holds other bytes; an object is never rewritten."""


class HeadMoved(StoreError):
    """The head is no longer what it was read as; nothing was written."""


class StoreUnavailable(StoreError):
    """The store did not answer as it should, often enough; later it may."""


class HeadUnknown(StoreUnavailable):
    """A swap may or may not have taken place: read the head and look at what it says."""


class StoreRefused(StoreError):
    """The store says no, or cannot keep the contract; asking again does not help."""


class NotAllowed(StoreRefused):
    """The store knows us, or does not, and denies us this request."""


class ObjectDamaged(Untrusted):
    """The bytes at hand do not have the digest that they should have."""


class ObjectStore(Protocol):
    """Objects of at most MAX_OBJECT_BYTES, each written once."""

    def put(self, key: str, body: bytes) -> None:
        """Store ``body`` durably before returning. The same bytes again are fine, other bytes
        raise ObjectConflict. Nobody ever sees a part of an object, and of many that put
        different bytes at once exactly one succeeds. Unless it returns, the object may or may
        not be there; putting it again is safe."""

    def put_file(self, key: str, source: Path) -> None:
        """Like ``put``, from a file and in bounded memory."""

    def get(self, key: str, *, expect: bytes | None = None) -> bytes:
        """The whole object, or ObjectMissing. With its SHA-256 as ``expect``, other bytes raise
        ObjectDamaged."""

    def get_file(self, key: str, to: Path, *, expect: bytes | None = None) -> None:
        """Like ``get``, into a file and in bounded memory; ``to`` is whole and on disk on
        return, and untouched otherwise."""

    def get_range(self, key: str, start: int, size: int) -> bytes:
        """At most ``size`` bytes from ``start``: fewer where the object ends, none beyond it."""

    def size(self, key: str) -> int:
        """How many bytes the object has, or ObjectMissing."""

    def keys(self, prefix: str = "", *, start_after: str = "") -> Iterator[str]:
        """The keys that start with ``prefix`` and are greater than ``start_after``, ordered by
        their UTF-8 bytes, read as they are asked for. An object put before the first step is
        among them; one put meanwhile may be."""


@dataclass(frozen=True, slots=True)
class Head:
    """A mutable value as it was read; ``value`` is None when nobody has written it yet."""

    name: str
    value: bytes | None
    version: str


class HeadStore(Protocol):
    """The few values that change. Their names are apart from the keys of objects."""

    def read(self, name: str) -> Head:
        """The head as it is now."""

    def swap(self, old: Head, value: bytes) -> Head:
        """Put ``value`` in place of ``old`` durably, or raise HeadMoved when the head is not
        ``old`` any more. Of many that swap the same ``old`` exactly one succeeds. HeadUnknown
        tells that no one can say whether it was done."""


class Retention(Protocol):
    """The only way to delete; whoever holds an ObjectStore has none."""

    def delete(self, key: str) -> None:
        """Delete the object; a missing one is fine, so that a cut-off retention can go on."""
