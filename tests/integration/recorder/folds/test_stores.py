"""Folds on Spark and in this process, over a directory and over a bucket: the same bytes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest

from recorder.folds import snapshots
from recorder.folds.snapshots import Expected
from spark_jobs.fold_overlay import FoldSite, fold_on
from support.objects import object_servers
from support.overlay import overlay_oracle
from support.recorder import fold_world
from veen.label import DEFAULT_PROFILE
from veen.objects.port import FileSettings
from veen.objects.store import StoreRef, open_store

NAME = "wallet.ledger"


def site(settings: Any, client: Path) -> FoldSite:
    return FoldSite(services=StoreRef(settings), client=client, profile=DEFAULT_PROFILE)


def test_executors_keep_what_this_process_reads_and_the_other_way_round(
    archived: Any, spark_context: Any, reader: Any
) -> None:
    at = site(FileSettings(archived.folder), reader.root)
    cold = archived.job("ledger", NAME, block=4)
    stored = replace(cold, keeps_summaries=True)
    due = archived.fold(cold).encode()
    assert fold_on(spark_context, at, cold).encode() == due
    assert list(archived.summaries()) == []
    assert fold_on(spark_context, at, stored, 3).encode() == due
    source = archived.source(stored)
    assert stored.fold(source).over(stored.run) == archived.fold(cold).opened()
    assert source.work.events == 150 % 4
    assert fold_on(spark_context, at, stored, 1).encode() == due


def test_a_snapshot_is_verified_on_spark(archived: Any, spark_context: Any, reader: Any) -> None:
    at = site(FileSettings(archived.folder), reader.root)
    order = archived.job("ledger", NAME, block=4)
    result = archived.fold(replace(order, run=type(order.run)(1, 90)))
    claim = result.prefix().checkpoint(result.label)
    for item in (claim, replace(claim, state_hash=bytes(32)), replace(claim, upto_stream_seq=91)):
        there, here = (
            snapshots.verify(item, Expected(), order, 150, folding)
            for folding in (lambda job: fold_on(spark_context, at, job, 2), archived.fold)
        )
        assert there == here


def test_a_directory_with_other_keys_is_refused_on_an_executor(
    archived: Any, reader: Any, tmp_path: Path
) -> None:
    from spark_jobs.fold_overlay import make_at  # noqa: PLC0415
    from veen.errors import Untrusted  # noqa: PLC0415
    from veen.overlay.fold import Node  # noqa: PLC0415

    other = fold_world.Reader.new(tmp_path / "other")
    job = archived.job("ledger", NAME, block=4)
    at = site(FileSettings(archived.folder), other.root)
    with pytest.raises(Untrusted, match="the keys on this host differ"):
        make_at(at, job, reader.open().scope(), Node(4, 0, 0))


def test_a_bucket_gives_the_same_bytes(
    new_hub: Callable[[int], Any],
    a_signed_history: Callable[..., list[Any]],
    bucket: Any,
    spark_context: Any,
    reader: Any,
) -> None:
    hub = new_hub(9)
    hub.write("ledger", a_signed_history(4, 50, NAME), Random(4))
    archived = fold_world.Archived(hub, open_store(bucket, object_servers.KEYS)).push()
    job = archived.job("ledger", NAME, block=4, keeps_summaries=True)
    result = fold_on(spark_context, site(bucket, reader.root), job, 2)
    assert result.folded == overlay_oracle.folded(NAME, hub.detail["ledger"])
    source = archived.source(job)
    assert job.fold(source).over(job.run) == result.opened()
    assert (source.work.events, source.work.summaries) == (2, 2)
