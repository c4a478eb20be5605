"""What a verifier brings to a proof package: nothing in a package is believed without it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from veen.hub_identity import HubIdentity


@dataclass(frozen=True, slots=True, kw_only=True)
class Trust:
    """Obtained by another way than the package.

    ``recorder_ids`` are the client_ids that may record queries and results; without any, the
    package cannot be proven, since any client with write access could have recorded them.
    """

    hub_id: bytes
    recorder_ids: frozenset[bytes] = frozenset()
    identity: HubIdentity | None = None
    """The newest identity of the hub known here. A package brings one, too, but an old package
    brings one in which a key retired since still counts as current.
    """
    origin: Callable[[bytes], HubIdentity | None] = lambda _hub_id: None
    """The identity of a hub that imported events come from, where it is known here."""
