"""Recorder steps: one signed document over all streams, remembered elsewhere (SDR0 3.2.4)."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from typing import Any, Final

from cli.selftest import naive
from cli.selftest.recorded import a_zone, leaves_of, record, some_events
from cli.selftest.step import Step, expect, expect_raises
from cli.selftest.world import World
from recorder.anchor import book as books
from recorder.checkpoints import check
from veen import cbor
from veen.digest import ht, u64be
from veen.errors import Untrusted
from veen.recorder_checkpoint import RecorderCheckpoint
from veen.sign import PrivateKey

_COUNT: Final = 9
_LINE: Final = ("previous", "index", "root", "epoch", "ts", "nonce")


def checkpoint(world: World) -> None:
    """Ends and roots are those of the log, each follows the last, and a changed one is refused."""
    zone = a_zone(world)
    recorded = record(zone, some_events(zone, _COUNT))
    with zone.acting() as admin:
        first = zone.checkpoint(admin)
        expect("the first is new", first.is_new, True)
        expect("the next without news", zone.checkpoint(admin).is_new, False)
        document = first.checkpoint
        for stream in zone.names:
            leaves, end = leaves_of(recorded, stream), document.end(stream)
            told = (end.last_seq, end.mmr_root) if end else None
            expect(f"the end of {stream}", told, (len(leaves), naive.root(leaves)))
        ends = [[end.stream_id, end.last_seq, end.mmr_root] for end in document.ends]
        expect("log_root", document.log_root, ht("veen/log-root", cbor.dump(ends)))
        more = record(zone, some_events(zone, 2))
        second = zone.checkpoint(admin).checkpoint
        held = {one.name: one.head_seq for one in check.verify_on_hub(admin.meet(), document)}
        for one in more:
            expect(f"what the hub holds of {one.stream}", held[one.stream] >= one.seq, True)
        hub = admin.meet().hub
        expect("kept in order", check.verify_chain((document, second), hub), 2)
    _refuse_altered(world, document, lambda one: check.verify_next(one, None, hub))
    expect_raises("one that goes back", Untrusted, check.verify_next, document, second, hub)


def _refuse_altered(world: World, document: RecorderCheckpoint, verify: Any) -> None:
    for what, altered in (
        ("another time", replace(document, created_at=document.created_at + 1)),
        ("another profile", replace(document, profile_id=world.random.randbytes(32))),
        ("another signature", replace(document, hub_sig=world.random.randbytes(64))),
        ("another signer", document.signed(PrivateKey(world.random.randbytes(32)))),
    ):
        expect_raises(f"a checkpoint with {what}", Untrusted, verify, altered)


def anchor(world: World) -> None:
    """The root is in a ledger that nobody can change in silence, found by the anchor alone."""
    zone = a_zone(world)
    book, now, found = zone.door().book(), int(time.time()), []
    for count in (1, 2):
        record(zone, some_events(zone, count))
        document = zone.checkpoint_now()
        name = zone.door().shelf().names()[-1]
        outcome = book.do(book.ask(name, now), now)
        if outcome.ref is None:
            raise outcome.error or Untrusted("no anchor, and no error either")
        found.append((document, outcome.ref.anchor_ref))
    expect("anchored", (book.status(now).anchored, book.status(now).waiting), (2, 0))
    (first, early), (last, late) = found
    ledger = zone.door().anchor()
    for document, ref in found:
        proven = books.verify(ledger, document, ref)
        expect("the root that is proven", proven.root, document.log_root)
    expect_raises("the anchor of another", Untrusted, books.verify, ledger, first, late)
    expect_raises("another root", Untrusted, ledger.verify, world.random.randbytes(32), early)
    path = zone.settings.anchor.path
    if path is None:
        raise Untrusted("the settings name no ledger")
    lines = path.read_text().splitlines()
    _expect_chained([json.loads(line) for line in lines], last)
    altered = json.loads(lines[1])
    altered["ts"] += 1
    changed = json.dumps(altered, sort_keys=True, separators=(",", ":"))
    for what, others in (
        ("a changed entry", [lines[0], changed, lines[2]]),
        ("a missing entry", [lines[0], lines[2]]),
        ("a cut ledger", lines[:2]),
    ):
        path.write_text("".join(f"{line}\n" for line in others))
        expect_raises(what, Untrusted, books.verify, ledger, last, late)
    path.write_text("".join(f"{line}\n" for line in lines))
    books.verify(ledger, last, late)


def _expect_chained(entries: list[dict[str, Any]], last: RecorderCheckpoint) -> None:
    """Every hash made again, as the text of the format says."""
    before = bytes(32).hex()
    for entry in entries:
        expect("what an entry follows", entry["previous"], before)
        parts = [
            bytes.fromhex(entry[name]) if isinstance(entry[name], str) else u64be(entry[name])
            for name in _LINE
        ]
        expect("the hash of an entry", entry["hash"], ht("veen/anchor-ledger", *parts).hex())
        before = entry["hash"]
    expect("the last root", entries[-1]["root"], last.log_root.hex())


STEPS: Final = (Step("checkpoint", checkpoint), Step("anchor", anchor))
