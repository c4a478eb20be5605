"""One process of a loaded hub is killed: nothing it acknowledged is lost, nothing forks."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from hub.fsck.verify import verify
from hub.settings import load
from hub.storage.datadir import DataDir


@pytest.mark.timeout(7_000)
def test_a_hub_that_loses_a_process_keeps_its_word(
    kills: ModuleType, make_hub: Callable[..., Any], tmp_path: Path
) -> None:
    hub = kills.start_directly(make_hub(toml=kills.TOML))
    wait_until_ready, restarts = hub.wait_until_ready, []

    def wait_and_verify() -> Any:
        wait_until_ready()
        restarts.append(assert_log_is_whole(hub, tmp_path / "copy"))
        return hub

    hub.wait_until_ready = wait_and_verify
    victims = ("supervisor", "sequencer")
    turns = 150 if kills.LONG else 26
    kills.kill_and_check(hub, seed=20, victims=victims, kills=turns)
    assert len(restarts) == turns
    assert restarts == sorted(restarts)


def assert_log_is_whole(hub: Any, copy: Path) -> int:
    """Verify what a hub left by its start, before anyone writes; how many entries it has.

    The hub holds its directory, so a copy of it is verified; nobody writes meanwhile.
    """
    shutil.copytree(hub.data, copy, ignore=shutil.ignore_patterns("run"))
    settings = load(hub.data.parent / "hub.toml")
    report = verify(
        DataDir(copy),
        limits=settings.limits,
        profiles=settings.profiles,
        streams=settings.streams,
        progress=lambda *_: None,
    )
    shutil.rmtree(copy)
    assert report.ok, report.faults
    assert not report.derived, report.derived
    return report.entries
