"""Folds and snapshots as they are submitted to a cluster: the same bytes as in this process."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import pytest

from recorder.folds import snapshots
from recorder.folds.snapshots import Expected
from spark_jobs import fold_overlay, verify_snapshot
from spark_jobs.fold_overlay import BROKEN, OK, FoldSite, fold_on
from support.objects import object_servers
from support.recorder import fold_world
from support.spark import spark_standalone
from veen.label import DEFAULT_PROFILE
from veen.objects.port import FileSettings, StoreRefused
from veen.objects.store import StoreRef, open_store

pytestmark = pytest.mark.e2e

NAME = "wallet.ledger"
BLOCK = 8
Submit = Callable[..., Any]


@pytest.fixture(scope="module")
def submit(
    cluster_environment: dict[str, str], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Submit]:
    """spark-submit to a master and two workers of its own."""
    with spark_standalone.cluster(cluster_environment, tmp_path_factory.mktemp("worker")) as master:
        yield partial(spark_standalone.submit, cluster_environment, master)


def words_of(archived: Any, client: Path, out: Path) -> tuple[object, ...]:
    return (
        "--store", archived.folder.as_uri(), "--hub-id", archived.hub.hub_id.hex(),
        "--stream", "ledger", "--client", client, "--block", str(BLOCK), "--out", out,
    )  # fmt: skip


@pytest.mark.long
def test_a_cluster_folds_to_the_bytes_of_local_mode(
    submit: Submit, archived: Any, spark_context: Any, reader: Any, tmp_path: Path
) -> None:
    job = archived.job("ledger", NAME, block=BLOCK, from_seq=3, to_seq=140)
    words = (*words_of(archived, reader.root, tmp_path / "there"), "--overlay", NAME)
    done = submit(fold_overlay.__file__, *words, "--from", "3", "--to", "140", "--summaries")
    assert done.returncode == fold_overlay.OK, done.stderr
    there = (tmp_path / "there").read_bytes()
    services = StoreRef(FileSettings(archived.folder))
    site = FoldSite(services=services, client=reader.root, profile=DEFAULT_PROFILE)
    assert there == fold_on(spark_context, site, job, 3).encode()
    assert there == archived.fold(job).encode()
    assert any(archived.summaries())


@pytest.mark.long
def test_a_cluster_gives_the_verdict_of_this_process(
    submit: Submit, archived: Any, reader: Any, tmp_path: Path
) -> None:
    order = archived.job("ledger", NAME, block=BLOCK)
    result = archived.fold(replace(order, run=type(order.run)(1, 90)))
    claim = result.prefix().checkpoint(result.label)
    for name, item, code in (
        ("good", claim, OK),
        ("bad", replace(claim, state_hash=bytes(32)), BROKEN),
    ):
        (tmp_path / name).write_bytes(item.encode())
        out = tmp_path / f"{name}.out"
        words = words_of(archived, reader.root, out)
        done = submit(verify_snapshot.__file__, *words, "--snapshot", tmp_path / name)
        assert done.returncode == code, done.stderr
        due = snapshots.verify(item, Expected(), order, 150, archived.fold)
        assert out.read_bytes() == json.dumps(due.document(), sort_keys=True).encode()


def test_summaries_are_kept_in_a_store_that_overwrites_only_when_it_is_accepted(
    new_hub: Callable[[int], Any],
    a_signed_history: Callable[..., list[Any]],
    spark_context: Any,
    reader: Any,
    tmp_path: Path,
) -> None:
    server = object_servers.rclone(tmp_path / "rclone")
    try:
        accepted = object_servers.s3_settings(server.endpoint, "z1/", accept_overwriting_store=True)
        hub = new_hub(9)
        hub.write("ledger", a_signed_history(4, 50, NAME), Random(4))
        archived = fold_world.Archived(hub, open_store(accepted, object_servers.KEYS)).push()
        strict = replace(accepted, accept_overwriting_store=False)
        cold = archived.job("ledger", NAME, block=4)
        stored = replace(cold, keeps_summaries=True)
        site = FoldSite(services=StoreRef(strict), client=reader.root, profile=DEFAULT_PROFILE)
        due = fold_on(spark_context, site, cold, 2).encode()
        with pytest.raises(StoreRefused, match="ignores If-None-Match"):
            fold_on(spark_context, site, stored, 2)
        assert list(archived.summaries()) == []
        site = replace(site, services=StoreRef(accepted))
        assert fold_on(spark_context, site, stored, 2).encode() == due
        assert any(archived.summaries())
    finally:
        server.stop()
