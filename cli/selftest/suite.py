"""The suites of the self-test and their steps, each suite with a world of its own (TS0)."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from cli.selftest import (
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
)
from cli.selftest.step import Result, Step, run
from cli.selftest.world import World, a_world


@dataclass(frozen=True, slots=True)
class Suite:
    name: str
    steps: tuple[Step[World], ...]


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
            with a_world(seed, count, timeout_sec, environment) as world:
                yield from run(suite.name, steps, world.begin, clock)
