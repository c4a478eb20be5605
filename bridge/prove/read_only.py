"""The proof that in Z1 no identity of the bridge writes, or reads what is not exported (AGB0 2.3,
4.3).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from bridge.prove.claims import Actor, ActorRole, ZoneActors
from bridge.prove.evidence import BridgeClaim
from bridge.stream_map import ONLINE_LOG

NAME: Final = "AGB0-4.3"
SAYS: Final = (
    f"no bridge identity writes in Z1, the audit writer's {ONLINE_LOG} excepted, and none reads a "
    "stream there that is not exported"
)
_EXPORT: Final = "export/"
_READING: Final = (ActorRole.BRIDGE, ActorRole.READER)
_WILDCARDS: Final = frozenset("*?[")


def prove_read_only(online: ZoneActors) -> BridgeClaim:
    """Prove it from the settings of hub and bridge in Z1 and every capability its hub accepted."""
    roles = (*_READING, ActorRole.AUDIT)
    mine = [actor for actor in online.actors if actor.part in roles]
    witness = {
        "hub_id": online.hub_id.hex(),
        "exported": list(online.exported),
        "identities": [actor.document() for actor in mine],
    }
    counterexample = next(_counterexamples(online, mine), None)
    return BridgeClaim(name=NAME, says=SAYS, witness=witness, counterexample=counterexample)


def _counterexamples(online: ZoneActors, mine: list[Actor]) -> Iterator[str]:
    if not mine:
        yield "Z1 names no identity of the bridge"
    if not online.is_gated:
        yield 'hub_online takes messages from anybody, the bridge included; set admission = "gated"'
    for actor in mine:
        allowed = (ONLINE_LOG,) if actor.part is ActorRole.AUDIT else ()
        for pattern in actor.writes:
            if pattern not in allowed:
                yield f"{actor.name} may write {pattern} in Z1; expected {_format_allowed(allowed)}"
        if actor.part in _READING:
            yield from _beyond(online, actor)


def _beyond(online: ZoneActors, actor: Actor) -> Iterator[str]:
    """Reads beyond what is exported. A pattern counts as such, except below export/."""
    exported = {*online.exported, ONLINE_LOG}
    for pattern in actor.reads:
        if pattern.startswith(_EXPORT) or pattern in exported - _wild(pattern):
            continue
        yield (
            f"{actor.name} may read {pattern} in Z1; expected only what is exported: "
            f"{', '.join(sorted(exported))}"
        )


def _wild(pattern: str) -> set[str]:
    return {pattern} if _WILDCARDS & set(pattern) else set()


def _format_allowed(allowed: tuple[str, ...]) -> str:
    return f"only {', '.join(allowed)}" if allowed else "nothing"
