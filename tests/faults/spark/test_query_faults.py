"""An archive that is not what the hub signed, or not as far, gives an error and no result."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from recorder.archive.manifest import LabelManifest
from recorder.archive.store import HubArchive
from recorder.query.descriptor import normalise
from spark_jobs.query_chunk import QueryTerms, look, reader_scope
from spark_jobs.query_collect import findings
from spark_jobs.query_digest import answer
from spark_jobs.query_plan import ChunkFacts, ChunkTask, NotInArchive, QueryRefused, plans
from support.audit import audit_files
from support.long_form import LONG
from support.recorder.query_histories import STREAMS as FILLED
from support.spark.query_archive import STREAMS, a_world, questions_of
from veen.digest import h
from veen.errors import Untrusted
from veen.limits import Limits
from veen.log import layout
from veen.log.chunk import PeakSnapshot, read_entries
from veen.mmr import Peaks
from veen.objects.port import FileSettings

pytestmark = pytest.mark.e2e

HTTP = FILLED[0]
START = 1_700_000_000


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return a_world(tmp_path_factory.mktemp("faults"), 5, 150)


@pytest.fixture(scope="module")
def pushed(world: Any, tmp_path_factory: pytest.TempPathFactory) -> Any:
    return world.archived(FileSettings(tmp_path_factory.mktemp("archive") / "store"))


@pytest.fixture
def archived(pushed: Any, tmp_path: Path) -> Any:
    """A copy of the archive, for a test to break."""
    shutil.copytree(pushed.settings.root, tmp_path / "store")
    return replace(pushed, settings=FileSettings(tmp_path / "store"))


def a_question(**changes: Any) -> Any:
    whole = {"query_id": "q", "scope": [HTTP], "filter": {}, "projection": ["*"]}
    whole |= {"evidence": {"mode": "none"}}
    return normalise(whole | changes, query_id_if_missing="-")


def after(seconds: int) -> dict[str, Any]:
    """From so many seconds after the start of the history on."""
    minute, second = divmod(13 * 60 + 20 + seconds, 60)
    return {"time": {"from": f"2023-11-14T22:{minute:02d}:{second:02d}Z"}}


class Looked:
    """The work of the executors, done here."""

    def __init__(self, world: Any, archived: Any, question: Any, checkpoint: Any = None) -> None:
        site = world.site(archived)
        self.checkpoint = checkpoint or world.checkpoint
        self.terms = QueryTerms(
            services=site.services, hub=world.hub, checkpoint=self.checkpoint, reader=site.reader,
            reader_scope=reader_scope(site.reader.keys()), questions=(question,),
        )  # fmt: skip
        archive = archived.archive
        self.plans = plans(archive, archive.latest(), self.checkpoint, (question,))

    def facts(
        self, *again: ChunkTask, known: dict[int, ChunkFacts] | None = None
    ) -> dict[int, ChunkFacts]:
        pieces = again or [piece for plan in self.plans for piece in plan.to_read]
        result = dict(known or {})
        for piece in pieces:
            for item in look(self.terms, piece):
                if isinstance(item, QueryRefused):
                    raise Untrusted(item.detail)
                if isinstance(item, ChunkFacts):
                    result[item.number] = item
        return result

    def judge(self, facts: dict[int, ChunkFacts]) -> None:
        for plan in self.plans:
            findings(plan, facts)


def refused(world: Any, archived: Any, question: Any) -> str:
    """Why the question is refused, whoever finds it."""
    with pytest.raises(Untrusted) as error:
        judged(world, archived, question)
    return str(error.value)


def judged(world: Any, archived: Any, question: Any) -> None:
    looked = Looked(world, archived, question)
    looked.judge(looked.facts())


def change(archived: Any, world: Any, name: str, edit: Callable[[bytes], bytes | None]) -> None:
    key = archived.key_of(name)
    archived.overwrite(key, edit((world.root / name).read_bytes()))


def test_an_archive_that_ends_before_the_checkpoint_is_named(
    spark_session: SparkSession, world: Any, tmp_path: Path
) -> None:
    behind = world.archived_early(FileSettings(tmp_path / "store"))
    ends = [item.end(HTTP).last_seq for item in (world.early, world.checkpoint)]
    assert 0 < ends[0] < ends[1]
    questions = questions_of([a_question()], tmp_path / "out")
    detail = (
        f"ends at stream_seq {ends[0]} of {HTTP}, the checkpoint at {ends[1]}: run veen archive"
    )
    with pytest.raises(NotInArchive, match=detail):
        answer(spark_session.sparkContext, world.site(behind), world.checkpoint, questions)
    assert not (tmp_path / "out").exists()


def test_a_missing_chunk_is_named_and_nothing_is_left(
    spark_session: SparkSession, world: Any, archived: Any, tmp_path: Path
) -> None:
    name = world.files(HTTP)[1]
    change(archived, world, name, lambda _: None)
    questions = questions_of([a_question(scope=[FILLED[1]]), a_question()], tmp_path / "out")
    with pytest.raises(Untrusted, match=f"{HTTP}: the archive lacks {name}"):
        answer(spark_session.sparkContext, world.site(archived), world.checkpoint, questions)
    assert list((tmp_path / "out").iterdir()) == []


def test_a_checkpoint_that_the_hub_did_not_sign_is_refused(
    spark_session: SparkSession, world: Any, archived: Any, tmp_path: Path
) -> None:
    forged = replace(world.checkpoint, created_at=world.checkpoint.created_at + 1)
    questions = questions_of([a_question()], tmp_path / "out")
    with pytest.raises(Untrusted, match="not signed by its hub"):
        answer(spark_session.sparkContext, world.site(archived), forged, questions)


def test_no_flipped_bit_below_the_checkpoint_is_silent(world: Any, archived: Any) -> None:
    draw = random.Random("bits")
    looked = Looked(world, archived, a_question(scope=list(FILLED)))
    good = looked.facts()
    looked.judge(good)
    pieces = [piece for plan in looked.plans for piece in plan.to_read]
    for piece in pieces * (8 if LONG else 1):
        raw = archived.services.to_read().objects.get(piece.chunk.key)
        at = draw.randrange(_end_of(raw, piece.last_seq))
        flipped = bytearray(raw)
        flipped[at] ^= 1 << draw.randrange(8)
        archived.overwrite(piece.chunk.key, bytes(flipped))
        with pytest.raises(Untrusted, match=r"chunk-|do not give"):
            looked.judge(looked.facts(piece, known=good))
        archived.overwrite(piece.chunk.key, raw)
    looked.judge(looked.facts())


def _end_of(raw: bytes, last_seq: int) -> int:
    """Where the last entry that counts ends."""
    entries = read_entries(raw, Limits())
    return max(at + item.whole_size for at, item, _ in entries if item.stream_seq <= last_seq)


def edits(world: Any) -> Iterator[tuple[Callable[[list[Any]], object], str]]:
    """What could be made of a chunk, by whoever has which keys, and how it shows."""

    def later(entries: list[Any]) -> None:
        entries[3].receipt = replace(entries[3].receipt, hub_ts=entries[3].receipt.hub_ts + 1)

    def without_client(entries: list[Any]) -> None:
        entries[3].msg = replace(entries[3].msg, sig=bytes(64))

    def other_message(entries: list[Any]) -> None:
        entries[3].msg = entries[2].msg

    def by_the_hub(entries: list[Any]) -> None:
        msg = entries[2].msg
        leaf = msg.leaf_hash()
        entries[3].msg = msg
        entries[3].receipt = replace(entries[3].receipt, leaf_hash=leaf).signed(world.hub_key)

    def back_in_time(entries: list[Any]) -> None:
        first = entries[0].receipt
        entries[3].receipt = replace(entries[3].receipt, hub_ts=first.hub_ts - 1).signed(
            world.hub_key
        )

    yield later, "not signed by a key"
    yield without_client, "not signed by its client"
    yield other_message, "the receipt is of another message"
    yield by_the_hub, "do not give the root of the checkpoint"
    yield back_in_time, "expected hub_ts"


@pytest.mark.parametrize("number", range(5))
def test_a_rewritten_chunk_is_refused(world: Any, archived: Any, number: int) -> None:
    edit, detail = list(edits(world))[number]
    name = world.files(HTTP)[2]
    change(archived, world, name, lambda raw: audit_files.forged(raw, edit))
    assert detail in refused(world, archived, a_question())


def test_a_hidden_message_at_the_end_of_the_span_is_refused(world: Any, archived: Any) -> None:
    """Whoever moves a message out of the span of time has to sign for the hub."""
    name = world.files(HTTP)[2]
    raw = (world.root / name).read_bytes()
    times = [item.receipt().hub_ts for _, _, item in read_entries(raw, Limits())]

    def hide(entries: list[Any]) -> None:
        for entry in entries[3:]:
            entry.receipt = replace(entry.receipt, hub_ts=times[-1])

    minute, second = divmod(13 * 60 + 20 + times[3] - START, 60)
    upto = {"time": {"to": f"2023-11-14T22:{minute:02d}:{second:02d}Z"}}
    assert times[3] < times[-1]
    change(archived, world, name, lambda raw: audit_files.forged(raw, hide))
    assert "not signed by a key" in refused(world, archived, a_question(filter=upto))


def test_a_span_of_time_reads_from_its_start_on(world: Any, archived: Any) -> None:
    question = a_question(filter=after(600))
    looked = Looked(world, archived, question)
    (plan,) = looked.plans
    first = plan.pieces[0].chunk.name.start_seq
    assert plan.peaks.size == first - 1 > 14
    for name in world.files(HTTP):
        chunk = layout.parse_chunk(name)
        if chunk is not None and chunk.end_seq < first:
            change(archived, world, name, lambda _: None)
    looked.judge(looked.facts())


def upto(seconds: int) -> dict[str, Any]:
    minute, second = divmod(13 * 60 + 20 + seconds, 60)
    return {"time": {"to": f"2023-11-14T22:{minute:02d}:{second:02d}Z"}}


def test_a_span_of_time_that_ends_early_leaves_what_follows_unread(
    world: Any, archived: Any
) -> None:
    looked = Looked(world, archived, a_question(filter=upto(60)))
    (plan,) = looked.plans
    read = {item.chunk.file for item in plan.to_read}
    left = [name for name in world.files(HTTP) if layout.parse_chunk(name) and name not in read]
    assert plan.bridges
    assert left
    for name in left:
        change(archived, world, name, lambda _: None)
    looked.judge(looked.facts())


def test_nodes_that_stand_for_chunks_and_are_not_the_hubs_are_refused(
    world: Any, archived: Any
) -> None:
    question = a_question(filter=upto(60))
    (plan,) = Looked(world, archived, question).plans
    detail = [bridge.gap.cut.after for bridge in plan.bridges if bridge.within.size]
    assert detail
    for size in detail:
        name = layout.peaks(world.labels[HTTP], size)
        raw = (world.root / name).read_bytes()
        peaks = PeakSnapshot.decode(raw)
        hashes = (h(b"another"), *peaks.peaks[1:])
        other = PeakSnapshot.of(peaks.label, Peaks(peaks.upto_seq, hashes)).encode()
        archived.overwrite(archived.key_of(name), other)
        assert "do not give the root" in refused(world, archived, question)
        archived.overwrite(archived.key_of(name), raw)
    judged(world, archived, question)


def test_a_manifest_whose_times_would_hide_the_end_of_a_span_is_refused(
    world: Any, archived: Any
) -> None:
    question = a_question(filter=upto(200))
    (plan,) = Looked(world, archived, question).plans
    late = plan.pieces[-1].chunk.name.end_seq
    _rewrite(world, archived, lambda item: item.end_seq > 7, START + 10**6)
    assert late > 14
    assert "times of its manifest" in refused(world, archived, question)


def test_peaks_that_are_not_the_hubs_are_refused(world: Any, archived: Any) -> None:
    question = a_question(filter=after(600))
    (plan,) = Looked(world, archived, question).plans
    name = layout.peaks(world.labels[HTTP], plan.peaks.size)

    def other(raw: bytes) -> bytes:
        peaks = PeakSnapshot.decode(raw)
        hashes = (h(b"another"), *peaks.peaks[1:])
        return PeakSnapshot.of(peaks.label, Peaks(peaks.upto_seq, hashes)).encode()

    change(archived, world, name, other)
    assert "do not give the root" in refused(world, archived, question)
    archived.overwrite(archived.key_of(name), None)
    assert f"lacks {name}" in refused(world, archived, question)


def test_a_manifest_whose_times_would_hide_chunks_is_refused(world: Any, archived: Any) -> None:
    question = a_question(filter=after(300))
    (plan,) = Looked(world, archived, question).plans
    start = plan.pieces[0].chunk.name.start_seq
    _rewrite(world, archived, lambda item: item.start_seq <= start + 7)
    assert "times of its manifest" in refused(world, archived, question)


def _rewrite(
    world: Any, archived: Any, is_moved: Callable[[Any], bool], to: int = START - 1
) -> None:
    """A manifest that says of some chunks that they are of another time."""
    archive = HubArchive(archived.services.to_write(), archived.hub_id)
    manifest = archive.latest()
    label = archive.label(manifest, world.labels[HTTP])
    assert label is not None
    assert label.tail is not None
    segments = tuple(
        replace(segment, first_ts=to, last_ts=to) if is_moved(segment) else segment
        for segment in label.segments
    )
    tail = replace(label.tail, first_ts=max(to, label.tail.first_ts), last_ts=max(to, START * 2))
    raw = replace(label, segments=segments, tail=tail).encode()
    LabelManifest.decode(raw)
    refs = tuple(
        replace(item, sha256=archive.put_version(raw)) if item.label == label.label else item
        for item in manifest.labels
    )
    head = archive.head()
    new = replace(manifest, labels=refs).encode()
    archive.heads.swap(head, archive.put_version(new))


def test_another_reader_on_an_executor_is_refused(world: Any, archived: Any) -> None:
    looked = Looked(world, archived, a_question())
    looked.terms = replace(looked.terms, reader_scope=bytes(32))
    with pytest.raises(Untrusted, match="the keys on this host differ"):
        looked.facts()


def test_a_stream_that_the_checkpoint_does_not_know_is_refused(world: Any, archived: Any) -> None:
    assert "does not cover record/new" in refused(world, archived, a_question(scope=["record/new"]))


def test_a_stream_without_messages_is_searched_and_empty(world: Any, archived: Any) -> None:
    looked = Looked(world, archived, a_question(scope=[STREAMS[-1]]))
    (plan,) = looked.plans
    assert plan.pieces == ()
    assert findings(plan, looked.facts()).spans == {0: (1, 0)}
