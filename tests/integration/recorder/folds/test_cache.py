"""What folds keep, what they read again, and what they refuse of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import Any

import pytest

from recorder.folds.cache import FoldKeys, drop
from recorder.folds.job import FoldJob, carry_out
from recorder.folds.source import FoldReader
from support.overlay import overlay_oracle
from veen.digest import h
from veen.errors import Untrusted
from veen.label import DEFAULT_PROFILE, Profile
from veen.limits import Limits
from veen.objects.files import FileRetention, StoreLayout
from veen.overlay.fold import FoldSummary

NAME = "wallet.ledger"


@pytest.fixture
def job(archived: Any) -> FoldJob:
    fold_job: FoldJob = archived.job("ledger", NAME, block=8, keeps_summaries=True)
    return fold_job


def worked(archived: Any, job: FoldJob) -> Any:
    """What a fold cost."""
    source = archived.source(job)
    carry_out(job, source)
    return source.work


def swap(archived: Any, key: str, raw: bytes) -> None:
    """Put other bytes where the store has these, as no one who keeps to its contract can."""
    FileRetention(StoreLayout(archived.folder)).delete(key)
    archived.store.objects.put(key, raw)


def the_top(archived: Any) -> str:
    """The key of the largest node from the first message on: 16 blocks of 8."""
    (key,) = (summary for summary in archived.summaries() if "/8/4/" in summary)
    return str(key)


def test_a_fold_keeps_nothing_unless_it_is_asked_to(archived: Any) -> None:
    archived.fold(archived.job("ledger", NAME, block=8))
    assert list(archived.store.objects.keys("folds/")) == []


def test_a_warm_fold_reads_only_the_unfinished_block(archived: Any, job: FoldJob) -> None:
    cold = worked(archived, job)
    assert (cold.events, cold.summaries, cold.stored) == (150, 0, 18 + 9 + 4 + 2 + 1)
    warm = worked(archived, job)
    assert (warm.events, warm.summaries, warm.stored) == (6, 2, 0)


def test_a_log_that_has_grown_is_folded_from_where_it_was(
    archived: Any, job: FoldJob, a_signed_history: Callable[..., list[Any]]
) -> None:
    worked(archived, job)
    archived.hub.write("ledger", a_signed_history(8, 50, NAME), Random(8))
    archived.push()
    longer = archived.job("ledger", NAME, block=8, keeps_summaries=True)
    assert worked(archived, longer).events == 200 - 144
    assert archived.fold(longer).folded == overlay_oracle.folded(
        NAME, archived.hub.detail["ledger"]
    )


def test_an_older_prefix_needs_no_more_than_its_own_parts(archived: Any, job: FoldJob) -> None:
    worked(archived, job)
    older = archived.job("ledger", NAME, block=8, keeps_summaries=True, from_seq=6, to_seq=91)
    assert worked(archived, older).events == 3 + 3


@pytest.mark.parametrize(
    "change",
    [
        pytest.param({"mmr_root": h(b"another root")}, id="root"),
        pytest.param({"label": h(b"another label")}, id="label"),
        pytest.param({"overlay": "orset"}, id="overlay"),
        pytest.param({"schema_set": h(b"other schemas")}, id="schemas"),
        pytest.param({"from_seq": 9}, id="from"),
        pytest.param({"to_seq": 120}, id="to"),
        pytest.param({"block": 4}, id="block"),
    ],
)
def test_a_summary_of_something_else_is_refused_by_its_key(
    archived: Any, job: FoldJob, change: dict[str, Any]
) -> None:
    worked(archived, job)
    key = the_top(archived)
    changed = replace(FoldSummary.decode(archived.store.objects.get(key)), **change)
    swap(archived, key, replace(changed, digest=changed.expected_digest()).encode())
    with pytest.raises(Untrusted, match=rf"^{key}: .* has another .*--drop-summaries"):
        worked(archived, job)


def test_a_summary_that_was_damaged_is_refused_by_its_key(archived: Any, job: FoldJob) -> None:
    worked(archived, job)
    key = the_top(archived)
    raw = bytearray(archived.store.objects.get(key))
    raw[len(raw) // 2] ^= 1
    swap(archived, key, bytes(raw))
    with pytest.raises(Untrusted, match=f"^{key}"):
        worked(archived, job)


def test_what_is_refused_can_be_dropped(archived: Any, job: FoldJob) -> None:
    due = archived.fold(job).encode()
    swap(archived, the_top(archived), b"junk")
    with pytest.raises(Untrusted):
        worked(archived, job)
    keys = FoldKeys(job.hub_id, job.label)
    assert drop(archived.store.objects, FileRetention(StoreLayout(archived.folder)), keys) == 34 + 7
    assert archived.fold(job).encode() == due


def test_places_that_lead_astray_are_refused_by_their_key(archived: Any, job: FoldJob) -> None:
    worked(archived, job)
    objects = archived.store.objects
    places = [key for key in objects.keys("folds/") if "/places/" in key]
    swap(archived, places[3], objects.get(places[2]))
    with pytest.raises(Untrusted, match=f"{places[3]}: expected the places of its chunk"):
        archived.fold(replace(job, overlay="orset"))


def test_the_summaries_of_another_log_are_not_even_found(
    archived: Any,
    job: FoldJob,
    new_hub: Callable[[int], Any],
    a_signed_history: Callable[..., list[Any]],
) -> None:
    """One message differs: every root after it does, and so does every key."""
    worked(archived, job)
    before = set(archived.summaries())
    archived.hub.write("other", a_signed_history(7, 150, NAME), Random(7))
    archived.push()
    archived.fold(archived.job("other", NAME, block=8, keeps_summaries=True))
    assert not {key.rpartition("/")[2] for key in before} & {
        key.rpartition("/")[2] for key in set(archived.summaries()) - before
    }


@pytest.mark.parametrize("other", ["keys", "profile"])
def test_a_reader_who_opens_less_has_summaries_of_its_own(
    archived: Any, job: FoldJob, other: str
) -> None:
    rich = archived.fold(job)
    keys = archived.hub.reader.keys if other == "profile" else (h(b"no reader"),)
    profile = Profile(pad_block=16) if other == "profile" else DEFAULT_PROFILE
    reader = FoldReader(keys, profile, Limits())
    source = job.source(archived.archive, reader)
    poor = carry_out(job, source)
    assert poor.opened().skipped.unopened.count == source.work.events == 150
    assert archived.fold(job) == rich
