"""Recorder steps: replay by stream_seq and by time, verified by the reader; tampering (I2)."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from io import BytesIO
from pathlib import Path
from typing import Any, Final

from cli.selftest.recorder import events_in
from cli.selftest.recorder_data import (
    EDITS,
    RecordedSample,
    RewrittenSource,
    a_zone,
    changed,
    fields_of,
    left_out,
    record,
    some_events,
)
from cli.selftest.samples import SelftestStep, Unexpected, expect, expect_raises, expect_that
from cli.selftest.world import World
from cli.selftest.zones import SelftestZone
from recorder import timestamp
from recorder.replay.job import Job
from recorder.replay.output import form_named
from recorder.replay.plan import (
    HubSource,
    OutOfReach,
    ReplayRequest,
    ReplaySource,
    by_place,
    by_time,
)
from recorder.replay.verify import check_file
from veen.client.log_head import Pair
from veen.errors import Untrusted, VeenError
from veen.limits import Limits
from veen.log.chunk import read_entries
from veen.log.entry import Entry
from veen.receipt import Receipt
from veen.recorder_checkpoint import RecorderCheckpoint

_COUNT: Final = 12
_PAUSE_SEC: Final = 0.02


def replay_by_place(world: World) -> None:
    """A replay has exactly the requested entries, with proofs that verify without a hub."""
    zone = a_zone(world)
    stream, recorded = zone.names[0], record(zone, some_events(zone, _COUNT))
    mine = [item for item in recorded if item.stream == stream]
    with zone.acting() as reader:
        source, checkpoint = HubSource(reader), zone.checkpoint(reader).checkpoint
        beyond = by_place(stream, 2, len(mine) + 1)
        expect_raises("what no checkpoint holds", OutOfReach, _replayed, zone, source, beyond,
                      checkpoint)  # fmt: skip
        out = _replayed(zone, source, by_place(stream, 2, 5, with_proofs=True), checkpoint)
    _expect_events(events_in(out), mine[1:5])
    expect("proven offline", check_file(out, world.hub_id, checkpoint).proven, 4)
    _refuse_altered(out, world.hub_id, checkpoint)


def _refuse_altered(out: Path, hub_id: bytes, checkpoint: RecorderCheckpoint) -> None:
    honest = out.read_text()
    lines = honest.splitlines(keepends=True)
    for what, altered in (
        ("another payload", honest.replace('"odd":true', '"odd":false', 1)),
        ("a missing event", "".join(lines[:-2] + lines[-1:])),
        ("a missing end", "".join(lines[:-1])),
    ):
        expect_that(altered != honest, f"{what} is another text")
        out.write_text(altered)
        expect_raises(what, VeenError, check_file, out, hub_id, checkpoint)


def replay_by_time(world: World) -> None:
    """A replay of a window of hub time has all streams in one order, with proven boundaries."""
    zone = a_zone(world)
    recorded: list[RecordedSample] = []
    for _ in range(3):
        recorded += record(zone, some_events(zone, 4))
        _wait_for_second_after(recorded[-1].hub_ts)
    start = recorded[4].hub_ts
    end = recorded[7].hub_ts
    with zone.acting() as reader:
        checkpoint = zone.checkpoint(reader).checkpoint
        expected = by_time(zone.names, start * 1_000, end * 1_000 + 999, with_proofs=True)
        out = _replayed(zone, HubSource(reader), expected, checkpoint)
    due = sorted(
        (item for item in recorded if start <= item.hub_ts <= end), key=lambda item: item.order
    )
    expect_that(0 < len(due) < len(recorded), "the window has some of the events")
    _expect_events(events_in(out), due)
    expect("proven offline", check_file(out, world.hub_id, checkpoint).proven, len(due))


def tampering(world: World) -> None:
    """A replay never returns an entry that was changed below a checkpoint (I2)."""
    zone = a_zone(world)
    record(zone, some_events(zone, _COUNT))
    stream = zone.names[0]
    with zone.acting() as reader:
        source, checkpoint = HubSource(reader), zone.checkpoint(reader).checkpoint
        pairs = list(reader.read(stream))
        expected = by_place(stream, 1, len(pairs))
        expect("what was not tampered with", _piped(source, expected, checkpoint), len(pairs))
        for what, edit in EDITS.items():
            for at in range(len(pairs)):
                rewritten = RewrittenSource(source, edit(pairs, at))
                detail = f"place {at + 1} {what}"
                error = expect_raises(detail, Untrusted, _piped, rewritten, expected, checkpoint)
                expect_that(stream in str(error), f"{detail}: the error names {stream}: {error}")
    _expect_not_silent(world, zone, checkpoint)


def _expect_not_silent(world: World, zone: SelftestZone, checkpoint: RecorderCheckpoint) -> None:
    """Expect the same for changes in the files of the hub with valid frames."""
    world.hub.stop()
    honest = {path: path.read_bytes() for path in (_chunk(world, name) for name in zone.names)}
    for (path, raw), edit in zip(honest.items(), (changed, left_out), strict=True):
        path.write_bytes(_edited(raw, edit))
    # A hub that does not start on such files is not silent about them.
    with suppress(Unexpected):
        world.hub.start()
    try:
        for stream in zone.names if world.hub.is_running() else ():
            with zone.acting() as reader:
                expected = by_place(stream, 1, None)
                expect_raises(f"a changed file of {stream}", VeenError, _piped,
                              HubSource(reader), expected, checkpoint)  # fmt: skip
    finally:
        world.hub.end()
        for path, raw in honest.items():
            path.write_bytes(raw)


def _chunk(world: World, stream: str) -> Path:
    label = world.labels(stream).at(0).hex()
    (chunk,) = (world.hub.datadir.root / "log").glob(f"chunk-{label}-*.open")
    return chunk


def _edited(raw: bytes, edit: Callable[..., list[Pair]]) -> bytes:
    entries = list(read_entries(raw, Limits()))
    pairs = [Pair(item.msg(), Receipt.decode(item.receipt_bytes)) for _, _, item in entries]
    headers = [header for _, header, _ in entries]
    altered = edit(pairs, len(pairs) // 2)
    return b"".join(
        Entry(item.msg.encode(), item.receipt.encode()).encode(header.label, header.stream_seq)
        for item, header in zip(altered, headers, strict=True)
    )


def _piped(source: ReplaySource, request: ReplayRequest, checkpoint: RecorderCheckpoint) -> int:
    job = Job(source=source, requested=lambda _: request, latest=lambda: checkpoint)
    return job.to_pipe(BytesIO(), form_named("jsonl")).new


def _replayed(
    zone: SelftestZone, source: ReplaySource, request: ReplayRequest, checkpoint: RecorderCheckpoint
) -> Path:
    out = zone.folder / "replay.jsonl"
    out.unlink(missing_ok=True)
    job = Job(source=source, requested=lambda _: request, latest=lambda: checkpoint)
    job.to_file(out, form_named("jsonl"), resume=False)
    return out


def _expect_events(value: list[dict[str, Any]], due: list[RecordedSample]) -> None:
    places = [(item["stream"], item["hub_commit_seq"]) for item in value]
    expect("places", places, [(sample.stream, sample.seq) for sample in due])
    for event, sample in zip(value, due, strict=True):
        said = fields_of(sample.observed)
        said["event_time"] = timestamp.render(said["event_time"])
        expect("what was recorded", {name: event[name] for name in said}, said)
        expect("receipt_id", event["receipt_id"], f"rcpt-{sample.leaf.hex()}")
        expect("proven", event["proven"], True)


def _wait_for_second_after(hub_ts: int) -> None:
    while int(time.time()) <= hub_ts:
        time.sleep(_PAUSE_SEC)


STEPS: Final = (
    SelftestStep("replay-by-place", replay_by_place),
    SelftestStep("replay-by-time", replay_by_time),
    SelftestStep("tampering", tampering),
)
