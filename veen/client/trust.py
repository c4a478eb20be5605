"""Which hub a client believes: a pinned name, and keys that only ever follow on (KEX0.1)."""

from __future__ import annotations

from dataclasses import replace

from veen.errors import Untrusted
from veen.hub_identity import HubIdentity, HubKey


def pinned(offered: HubIdentity, hub_id: bytes) -> HubIdentity:
    """The identity on offer, if it is that of the hub we were told of."""
    if offered.hub_id != hub_id:
        raise Untrusted(
            f"the hub is {offered.hub_id.hex()}, not {hub_id.hex()} as pinned: "
            "another hub answers at this address, or someone stands in between"
        )
    return offered


def followed(known: HubIdentity, offered: HubIdentity) -> HubIdentity:
    """The identity on offer, if it says all that the known one said, and maybe more."""
    pinned(offered, known.hub_id)
    if len(offered.hub_keys) < len(known.hub_keys):
        raise Untrusted("the hub shows fewer keys than it had: its identity was put back")
    for old, new in zip(known.hub_keys, offered.hub_keys, strict=False):
        if _opened(old) != _opened(new) or (old.valid_until not in (None, new.valid_until)):
            raise Untrusted(f"hub key {old.key_id.hex()} is not what it was: two chains of keys")
    return offered


def newest(known: HubIdentity, offered: HubIdentity) -> HubIdentity:
    """Whichever of two identities of a hub has more keys; Untrusted if one does not extend the
    other. What is signed is verified by it: it alone says when the older keys retired.
    """
    if len(offered.hub_keys) < len(known.hub_keys):
        pinned(offered, known.hub_id)
        return followed(offered, known)
    return followed(known, offered)


def _opened(key: HubKey) -> HubKey:
    """A key without its end, which is set when the next key comes."""
    return replace(key, valid_until=None)
