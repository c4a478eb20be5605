"""The suites of the self-test and their steps, each suite with a world of its own (TS0)."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Final

from cli.selftest import (
    bridge_carriers,
    bridge_claims,
    core_capabilities,
    core_epochs,
    core_hub,
    core_messages,
    core_refusals,
    core_state,
    fuzz_decoders,
    fuzz_hub,
    props_hub,
    props_mmr,
    props_wire,
    query_results,
    query_trust,
    recorder_events,
    recorder_proofs,
    recorder_replays,
)
from cli.selftest.bridge_world import BridgeWorld, a_bridge_world
from cli.selftest.query_world import QueryWorld, a_query_world
from cli.selftest.step import Result, Step, run
from cli.selftest.world import World, a_world


@dataclass(frozen=True, slots=True)
class Suite:
    """``opening`` makes the world of its steps, which get it from ``begin``."""

    name: str
    steps: tuple[Step[Any], ...]
    opening: Callable[..., AbstractContextManager[World | QueryWorld | BridgeWorld]] = a_world


SUITES: Final = (
    Suite(
        "core",
        (
            *core_messages.STEPS,
            *core_capabilities.STEPS,
            *core_refusals.STEPS,
            *core_state.STEPS,
            *core_epochs.STEPS,
            *core_hub.STEPS,
        ),
    ),
    Suite("props", (*props_mmr.STEPS, *props_wire.STEPS, *props_hub.STEPS)),
    Suite("fuzz", (*fuzz_decoders.STEPS, *fuzz_hub.STEPS)),
    Suite(
        "recorder",
        (*recorder_events.STEPS, *recorder_proofs.STEPS, *recorder_replays.STEPS),
    ),
    Suite("query", (*query_results.STEPS, *query_trust.STEPS), a_query_world),
    Suite("bridge", (*bridge_carriers.STEPS, *bridge_claims.STEPS), a_bridge_world),
)


def names_of(suites: Sequence[Suite]) -> frozenset[str]:
    return frozenset(step.name for suite in suites for step in suite.steps)


def results(
    suites: Sequence[Suite],
    wanted: frozenset[str],
    *,
    seed: int,
    count: int | None,
    timeout_sec: float,
    environment: Mapping[str, str],
    clock: Callable[[], float],
) -> Generator[Result, None, None]:
    """Run the steps that are wanted, in their order; each result as soon as it is there."""
    for suite in suites:
        steps = [step for step in suite.steps if step.name in wanted]
        if steps:
            with suite.opening(seed, count, timeout_sec, environment) as world:
                yield from run(suite.name, steps, world.begin, clock)
