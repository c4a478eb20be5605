"""Recorder steps: replay by place and by time, proven by the reader; tampering shows (I2)."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from io import BytesIO
from pathlib import Path
from typing import Any, Final

from cli.selftest.recorded import Recorded, a_zone, fields_of, record, some_events
from cli.selftest.recorder_events import events_in
from cli.selftest.rewritten import EDITS, RewrittenSource, changed, left_out
from cli.selftest.step import Step, Unexpected, expect, expect_raises, expect_that
from cli.selftest.world import World
from cli.selftest.zone import Zone
from recorder import timestamp
from recorder.replay.check import check_file
from recorder.replay.job import Job
from recorder.replay.output import form_named
from recorder.replay.source import HubSource, Source
from recorder.replay.wanted import OutOfReach, Wanted, by_place, by_time
from veen.chunk import read_entries
from veen.client.pair import Pair
from veen.entry import Entry
from veen.errors import Untrusted, VeenError
from veen.limits import Limits
from veen.receipt import Receipt
from veen.recorder_checkpoint import RecorderCheckpoint

_COUNT: Final = 12
_PAUSE_SEC: Final = 0.02


def replay_by_place(world: World) -> None:
    """Just the places that were asked for, with all that proves them to whoever has no hub."""
    zone = a_zone(world)
    stream, recorded = zone.names[0], record(zone, some_events(zone, _COUNT))
    mine = [one for one in recorded if one.stream == stream]
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
    """All streams of a window of hub time in one order; the edges are proven, too."""
    zone = a_zone(world)
    recorded: list[Recorded] = []
    for _ in range(3):
        recorded += record(zone, some_events(zone, 4))
        _wait_for_second_after(recorded[-1].hub_ts)
    start = recorded[4].hub_ts
    end = recorded[7].hub_ts
    with zone.acting() as reader:
        checkpoint = zone.checkpoint(reader).checkpoint
        wanted = by_time(zone.names, start * 1_000, end * 1_000 + 999, with_proofs=True)
        out = _replayed(zone, HubSource(reader), wanted, checkpoint)
    due = sorted((one for one in recorded if start <= one.hub_ts <= end), key=lambda one: one.order)
    expect_that(0 < len(due) < len(recorded), "the window has some of the events")
    _expect_events(events_in(out), due)
    expect("proven offline", check_file(out, world.hub_id, checkpoint).proven, len(due))


def tampering(world: World) -> None:
    """Whatever is changed below a checkpoint, at any place, no replay gives it out (I2)."""
    zone = a_zone(world)
    record(zone, some_events(zone, _COUNT))
    stream = zone.names[0]
    with zone.acting() as reader:
        source, checkpoint = HubSource(reader), zone.checkpoint(reader).checkpoint
        pairs = list(reader.read(stream))
        wanted = by_place(stream, 1, len(pairs))
        expect("what was not tampered with", _piped(source, wanted, checkpoint), len(pairs))
        for what, edit in EDITS.items():
            for at in range(len(pairs)):
                rewritten = RewrittenSource(source, edit(pairs, at))
                told = f"place {at + 1} {what}"
                error = expect_raises(told, Untrusted, _piped, rewritten, wanted, checkpoint)
                expect_that(stream in str(error), f"{told}: the error names {stream}: {error}")
    _expect_not_silent(world, zone, checkpoint)


def _expect_not_silent(world: World, zone: Zone, checkpoint: RecorderCheckpoint) -> None:
    """The same in the files of the hub, with frames as if they were right."""
    world.hub.stop()
    honest = {path: path.read_bytes() for path in (_chunk(world, one) for one in zone.names)}
    for (path, raw), edit in zip(honest.items(), (changed, left_out), strict=True):
        path.write_bytes(_edited(raw, edit))
    # A hub that does not start on such files is not silent about them.
    with suppress(Unexpected):
        world.hub.start()
    try:
        for stream in zone.names if world.hub.is_running() else ():
            with zone.acting() as reader:
                wanted = by_place(stream, 1, None)
                expect_raises(f"a changed file of {stream}", VeenError, _piped,
                              HubSource(reader), wanted, checkpoint)  # fmt: skip
    finally:
        world.hub.end()
        for path, raw in honest.items():
            path.write_bytes(raw)


def _chunk(world: World, stream: str) -> Path:
    label = world.labels(stream).at(0).hex()
    (found,) = (world.hub.datadir.root / "log").glob(f"chunk-{label}-*.open")
    return found


def _edited(raw: bytes, edit: Callable[..., list[Pair]]) -> bytes:
    found = list(read_entries(raw, Limits()))
    pairs = [Pair(one.msg(), Receipt.decode(one.receipt_bytes)) for _, _, one in found]
    headers = [header for _, header, _ in found]
    altered = edit(pairs, len(pairs) // 2)
    return b"".join(
        Entry(one.msg.encode(), one.receipt.encode()).encode(header.label, header.stream_seq)
        for one, header in zip(altered, headers, strict=True)
    )


def _piped(source: Source, wanted: Wanted, checkpoint: RecorderCheckpoint) -> int:
    job = Job(source=source, wanted=lambda _: wanted, latest=lambda: checkpoint)
    return job.to_pipe(BytesIO(), form_named("jsonl")).new


def _replayed(zone: Zone, source: Source, wanted: Wanted, checkpoint: RecorderCheckpoint) -> Path:
    out = zone.folder / "replay.jsonl"
    out.unlink(missing_ok=True)
    job = Job(source=source, wanted=lambda _: wanted, latest=lambda: checkpoint)
    job.to_file(out, form_named("jsonl"), resume=False)
    return out


def _expect_events(found: list[dict[str, Any]], due: list[Recorded]) -> None:
    places = [(one["stream"], one["hub_commit_seq"]) for one in found]
    expect("places", places, [(one.stream, one.seq) for one in due])
    for event, one in zip(found, due, strict=True):
        said = fields_of(one.observed)
        said["event_time"] = timestamp.render(said["event_time"])
        expect("what was recorded", {name: event[name] for name in said}, said)
        expect("receipt_id", event["receipt_id"], f"rcpt-{one.leaf.hex()}")
        expect("proven", event["proven"], True)


def _wait_for_second_after(hub_ts: int) -> None:
    while int(time.time()) <= hub_ts:
        time.sleep(_PAUSE_SEC)


STEPS: Final = (
    Step("replay-by-place", replay_by_place),
    Step("replay-by-time", replay_by_time),
    Step("tampering", tampering),
)
