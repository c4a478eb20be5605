"""J3: nothing leads from Z2 to hub_online, by the enumeration of everybody who can act (AGB0 4.8).

What is enumerated is what both zones give: principals and issuers in the settings of the hubs,
identities of the bridge, and every capability that the control log of a hub has ever taken.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Any

from bridge.prove import Claim
from bridge.stream_map import IMPORTED, OFFLINE_LOG, ONLINE_LOG

SAYS = "no identity and no key leads from Z2 to a stream of hub_online"
EVERYTHING = "*"


class Part(Enum):
    """What somebody is there for; ``BRIDGE`` and ``AUDIT`` are bound to less than others."""

    BRIDGE = "bridge"
    AUDIT = "audit"
    READER = "reader"
    PRINCIPAL = "principal"
    SUBJECT = "subject"
    """Known by a capability alone."""
    ISSUER = "issuer"


@dataclass(frozen=True, slots=True, kw_only=True)
class Actor:
    """``secrets`` tell whoever acts apart: public keys, and hashes of tokens. ``reads`` and
    ``writes`` are patterns of streams; an issuer can let anybody write anything.
    """

    name: str
    part: Part
    secrets: frozenset[bytes]
    reads: tuple[str, ...] = ()
    writes: tuple[str, ...] = ()

    def document(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "part": self.part.value,
            "keys": sorted(one.hex() for one in self.secrets),
            "reads": list(self.reads),
            "writes": list(self.writes),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class ZoneActors:
    """Everybody of one zone, by the settings and by ``control_entries`` of its hub's control log,
    which lead to ``control_root``. ``exported`` are the streams that its bridge carries away.
    """

    hub_id: bytes
    url: str
    is_gated: bool
    actors: tuple[Actor, ...]
    control_entries: int
    control_root: bytes
    exported: tuple[str, ...] = ()

    def document(self) -> dict[str, Any]:
        return {
            "hub_id": self.hub_id.hex(),
            "gated": self.is_gated,
            "control_log": {"entries": self.control_entries, "root": self.control_root.hex()},
            "actors": [one.document() for one in self.actors],
        }


def prove_directions(online: ZoneActors, offline: ZoneActors) -> Claim:
    found = next(_counterexamples(online, offline), None)
    witness = {
        "online": online.document(),
        "offline": offline.document(),
        "keys": {
            "online": len(_secrets(online)),
            "offline": len(_secrets(offline)),
            "in_both": len(_secrets(online) & _secrets(offline)),
        },
    }
    return Claim(name="J3", says=SAYS, witness=witness, counterexample=found)


def _counterexamples(online: ZoneActors, offline: ZoneActors) -> Iterator[str]:
    if online.hub_id == offline.hub_id or online.url == offline.url:
        yield f"both zones go to one hub, {online.hub_id.hex()} at {online.url}"
    if not online.is_gated:
        yield 'hub_online takes messages from anybody; set admission = "gated"'
    yield from _shared(online, offline)
    yield from _bound(online.actors, Part.BRIDGE, "writes", ())
    yield from _bound(online.actors, Part.AUDIT, "writes", (ONLINE_LOG,))
    yield from _bound(online.actors, Part.AUDIT, "reads", ())
    yield from _bound(offline.actors, Part.BRIDGE, "reads", ())
    yield from _bound(offline.actors, Part.BRIDGE, "writes", (IMPORTED,))
    yield from _bound(offline.actors, Part.AUDIT, "writes", (OFFLINE_LOG,))
    yield from _bound(offline.actors, Part.AUDIT, "reads", ())
    for one in online.actors:
        for pattern in one.writes:
            if pattern.startswith((IMPORTED, OFFLINE_LOG)):
                yield f"{one.name} may write {pattern} in hub_online, where Z2's events would go"


def _shared(online: ZoneActors, offline: ZoneActors) -> Iterator[str]:
    for here in offline.actors:
        for there in online.actors:
            common = here.secrets & there.secrets
            if common:
                also = f", which writes {list(there.writes)}" if there.writes else ""
                yield (
                    f"key {min(common).hex()} is {here.name} in Z2 and {there.name} in Z1{also}; "
                    "give each zone keys of its own"
                )


def _bound(
    actors: Iterable[Actor], part: Part, verb: str, allowed: tuple[str, ...]
) -> Iterator[str]:
    for one in actors:
        for pattern in getattr(one, verb):
            if one.part is part and not (allowed and pattern.startswith(allowed)):
                only = f"only {', '.join(allowed)}" if allowed else "nothing"
                yield f"{one.name} {verb} {pattern}; the {part.value} of its zone {verb} {only}"


def _secrets(zone: ZoneActors) -> frozenset[bytes]:
    return frozenset().union(*(one.secrets for one in zone.actors))
