"""The suites of the self-test and their steps; each suite has its own world (TS0)."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Final

from cli.selftest import bridge, core, core_hub, fuzz, props, query, recorder, recorder_replays
from cli.selftest.query import QueryWorld, a_query_world
from cli.selftest.samples import SelftestStep, StepResult, run
from cli.selftest.world import World, a_world
from cli.selftest.zones import BridgeWorld, a_bridge_world


@dataclass(frozen=True, slots=True)
class Suite:
    """A suite: ``opening`` creates the world, from which ``begin`` prepares each step."""

    name: str
    steps: tuple[SelftestStep[Any], ...]
    opening: Callable[..., AbstractContextManager[World | QueryWorld | BridgeWorld]] = a_world


SUITES: Final = (
    Suite(
        "core",
        (
            *core.MESSAGE_STEPS,
            *core.CAPABILITY_STEPS,
            *core_hub.REFUSAL_STEPS,
            *core.STATE_STEPS,
            *core.EPOCH_STEPS,
            *core_hub.HUB_STEPS,
        ),
    ),
    Suite("props", (*props.MMR_STEPS, *props.WIRE_STEPS, *props.HUB_STEPS)),
    Suite("fuzz", (*fuzz.DECODER_STEPS, *fuzz.HUB_STEPS)),
    Suite(
        "recorder",
        (*recorder.EVENT_STEPS, *recorder.PROOF_STEPS, *recorder_replays.STEPS),
    ),
    Suite("query", (*query.RESULT_STEPS, *query.TRUST_STEPS), a_query_world),
    Suite("bridge", (*bridge.CARRIER_STEPS, *bridge.CLAIM_STEPS), a_bridge_world),
)


def names_of(suites: Sequence[Suite]) -> frozenset[str]:
    return frozenset(step.name for suite in suites for step in suite.steps)


def results(
    suites: Sequence[Suite],
    value: frozenset[str],
    *,
    seed: int,
    count: int | None,
    timeout_sec: float,
    environment: Mapping[str, str],
    clock: Callable[[], float],
) -> Generator[StepResult, None, None]:
    """Run the selected steps in order, and yield each result as it arrives."""
    for suite in suites:
        steps = [step for step in suite.steps if step.name in value]
        if steps:
            with suite.opening(seed, count, timeout_sec, environment) as world:
                yield from run(suite.name, steps, world.begin, clock)
