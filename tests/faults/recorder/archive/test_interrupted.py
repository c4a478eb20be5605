"""Pushes that are killed, raced, or cut off by the store; what is left leads to the whole."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from recorder.archive.push import OldCopy
from support.long_form import LONG
from support.objects import fault_proxy, object_servers
from support.paths import SUPPORT
from support.recorder import archive_carry
from veen.objects.port import HeadStore, HeadUnknown, Store, StoreError, StoreHead

KILLS = 300 if LONG else 20
FAULTY_PUSHES = 60 if LONG else 2
SCRIPT = SUPPORT / "recorder" / "push_kills.py"


@pytest.mark.timeout(1_800)
def test_a_push_that_was_killed_is_completed_by_the_next(hub_data: Path, tmp_path: Path) -> None:
    command = [
        sys.executable,
        str(SCRIPT),
        str(hub_data),
        str(tmp_path / "stores"),
        str(KILLS),
        "7",
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == [str(KILLS)]


class OvertakenHeads:
    """Lets somebody else be first, once."""

    def __init__(self, heads: HeadStore, others: Callable[[], object]) -> None:
        self._heads = heads
        self._others: Callable[[], object] | None = others

    def read(self, name: str) -> StoreHead:
        return self._heads.read(name)

    def swap(self, old: StoreHead, value: bytes) -> StoreHead:
        others, self._others = self._others, None
        if others is not None:
            others()
        return self._heads.swap(old, value)


class ForgetfulHeads(OvertakenHeads):
    """The answer to a swap is lost, whether it was done or not."""

    is_done = True

    def swap(self, old: StoreHead, value: bytes) -> StoreHead:
        if self.is_done:
            super().swap(old, value)
        raise HeadUnknown("the answer was lost")


def test_whoever_loses_the_race_for_the_head_looks_again(
    hub_data: Path, file_store: Store, tmp_path: Path
) -> None:
    archive_carry.keygen(tmp_path / "me")

    def others() -> None:
        archive_carry.push(hub_data, file_store, archive_carry.sealer(tmp_path / "me"))

    raced = replace(file_store, heads=OvertakenHeads(file_store.heads, others))
    result = archive_carry.push(hub_data, raced)
    assert result.manifest == archive_carry.archive_of(file_store).head().value
    assert result.is_escrowed, "what the other had pushed was dropped"
    assert archive_carry.checked(file_store, read_all=True).ok


def test_an_old_copy_that_is_overtaken_by_the_hub_is_refused(
    stopped_hub: Any, hub_data: Path, file_store: Store, tmp_path: Path
) -> None:
    old = Path(shutil.copytree(hub_data, tmp_path / "old"))
    opened = next((old / "log").glob(f"chunk-{stopped_hub.label.hex()}-*.open"))
    (old / "log" / f"checkpoint-{stopped_hub.label.hex()}-{33:020}.cbor").unlink()
    opened.write_bytes(opened.read_bytes()[:700])
    heads = OvertakenHeads(file_store.heads, lambda: archive_carry.push(hub_data, file_store))
    with pytest.raises(OldCopy):
        archive_carry.push(old, replace(file_store, heads=heads))
    assert archive_carry.checked(file_store, read_all=True).ok
    assert archive_carry.push(hub_data, file_store).new_objects == 0


def test_a_lost_answer_to_the_swap_is_settled_by_reading_the_head(
    hub_data: Path, file_store: Store
) -> None:
    heads = ForgetfulHeads(file_store.heads, lambda: None)
    heads.is_done = False
    with pytest.raises(HeadUnknown):
        archive_carry.push(hub_data, replace(file_store, heads=heads))
    assert archive_carry.archive_of(file_store).head().value is None
    heads.is_done = True
    result = archive_carry.push(hub_data, replace(file_store, heads=heads))
    assert archive_carry.archive_of(file_store).head().value == result.manifest


@pytest.mark.timeout(1_800)
@pytest.mark.parametrize("seed", range(FAULTY_PUSHES))
def test_pushes_through_a_faulty_network_end_in_a_whole_archive(
    seed: int,
    hub_data: Path,
    moto: Any,
    tmp_path: Path,
) -> None:
    with fault_proxy.FaultProxy(moto.port) as proxy:
        settings = object_servers.s3_settings(
            proxy.endpoint, f"faulty-{seed}/", timeout_seconds=0.3, attempts=8
        )
        store, _ = object_servers.impatient_store(settings)
        proxy.plan(seed)
        for _ in range(100):
            try:
                archive_carry.push(hub_data, store)
                break
            except StoreError:
                continue
        proxy.plan(None)
        assert sum(proxy.seen.values()) - proxy.seen["well"] > 20
        assert archive_carry.checked(store, read_all=True).ok
        assert archive_carry.push(hub_data, store).new_objects == 0
        archive_carry.restore(store, tmp_path / "again")
        assert archive_carry.files(tmp_path / "again") == archive_carry.files(hub_data)
