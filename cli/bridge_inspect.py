"""``veen bridge inspect``: what a carrier says it holds, in the open and without any check."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Annotated, Any

import typer

from bridge.bundle import BundleEvent, BundleLimits
from bridge.bundle_reader import Source, read_events, survey
from bridge.carrier.age import age_told
from bridge.carrier.bag_path import BagPath
from bridge.carrier.carrier import Carrier
from bridge.carrier.check import UNREADABLE
from bridge.carrier.ledger import Ledger
from bridge.carrier.open_set import CarrierSet
from bridge.carrier.unpack import unpacked
from bridge.medium_bags import carriers
from bridge.refusal import Refused
from cli.bridge_options import BagsArgument, ZoneKeyOption, zone_keys
from cli.bridge_verify import ScratchOption, room
from cli.console import manner, notice, progress, show
from cli.failure import INTEGRITY
from cli.options import surroundings
from veen.receipt import Receipt


def inspect(
    bags: BagsArgument,
    events: Annotated[
        int, typer.Option("--events", min=0, metavar="N", help="Show so many events, too.")
    ] = 0,
    key: ZoneKeyOption = None,
    scratch: ScratchOption = None,
) -> None:
    """Show what carriers, or files with bundles, say of themselves, without any check.

    The hashes of volumes are checked, since damaged ones cannot be read. For who signed what, and
    whether it holds, there is veen bridge verify. A carrier that cannot be read is shown as refused
    beside the others, and the exit code is 3.

    Example: veen bridge inspect /media/usb --events 3 --json
    """
    files = [one for one in bags if one.is_file()]
    folders = [one.absolute() for one in bags if not one.is_file()]
    now = surroundings().clock()
    shown: list[dict[str, Any]] = []
    for file in files:
        with file.open("rb") as source:
            shown.append({"file": str(file), "bundle": _bundle(source, events, now)})
    with room(scratch) as place:
        look = _Look(zone_keys(key), place, events, now)
        found = carriers(folders) if folders else []
        shown += [_judged(some, look) for some in found]
    notice("nothing of this was verified; see veen bridge verify")
    refused = sum("refused" in one for one in shown)
    show({"carriers": shown} | ({"ok": False} if refused else {}))
    if refused:
        if not manner().json:
            typer.echo(f"veen: {refused} of {len(shown)} carriers cannot be read", err=True)
        raise typer.Exit(INTEGRITY)


@dataclass(frozen=True, slots=True)
class _Look:
    """What is looked with, at how many events, and when."""

    privates: tuple[bytes, ...]
    place: Path
    events: int
    now: int


def _judged(bags: tuple[BagPath, ...], look: _Look) -> dict[str, Any]:
    """A carrier that cannot be read is shown as refused; the others are shown all the same."""
    try:
        return _carrier(bags, look)
    except Refused as error:
        return {"bags": [str(one) for one in bags], "refused": str(error)}
    except OSError as error:
        if error.errno not in UNREADABLE:
            raise
        return {"bags": [str(one) for one in bags], "refused": f"unreadable: {error.strerror}"}


def _carrier(bags: tuple[BagPath, ...], look: _Look) -> dict[str, Any]:
    with CarrierSet(bags) as found:
        carrier = found.carrier
        shown = {"bags": [str(one) for one in bags], **_table(carrier)}
        if carrier.encryption is not None and not look.privates:
            return {**shown, "ledger": None, "bundle": "sealed; give --key to look inside"}
        found.verify_complete()
        found.verify_intact(progress)
        stored = found.stored(look.place, progress)
        with unpacked(carrier, stored, look.privates, look.place, watch=progress) as cargo:
            is_bundle = cargo.ledger.tail[-1].bundle_id is not None
            inside = _bundle(cargo.content, look.events, look.now) if is_bundle else "heartbeat"
            return {**shown, "ledger": _ledger(cargo.ledger), "bundle": inside}


def _table(carrier: Carrier) -> dict[str, Any]:
    packed, sealed = carrier.compression, carrier.encryption
    return {
        "tool": carrier.tool,
        "format": carrier.ver,
        "set_id": carrier.set_id.hex(),
        "media": carrier.bags,
        "data_volumes": carrier.data,
        "parity_volumes": carrier.parity,
        "stored_bytes": carrier.stored_len,
        "compression": packed.alg if packed else None,
        "sealed_to": sealed.recipient.hex() if sealed else None,
    }


def _ledger(ledger: Ledger) -> dict[str, Any]:
    return {
        "bridge_id": ledger.bridge_id.hex(),
        "entries": [
            {
                "n": one.n,
                "bundle_id": one.bundle_id.hex() if one.bundle_id else None,
                "stream": one.stream or None,
                "from_seq": one.from_seq,
                "to_seq": one.to_seq,
                "checkpoint_id": one.checkpoint_id.hex(),
            }
            for one in ledger.tail
        ],
    }


def _bundle(source: Source, events: int, now: int) -> dict[str, Any]:
    found = survey(source, BundleLimits())
    header = found.header
    checkpoint = header.export_checkpoint
    return {
        "bundle_id": header.bundle_id.hex() if header.bundle_id else None,
        "source_hub_id": header.source_hub_id.hex(),
        "source_profile_id": header.source_profile_id.hex(),
        "stream": header.export_stream,
        "from_seq": header.export_seq_from,
        "to_seq": header.export_seq_to,
        "time_from": header.export_time_from,
        "time_to": header.export_time_to,
        "checkpoint_id": checkpoint.checkpoint_id.hex(),
        "checkpoint_at": checkpoint.created_at,
        "checkpoint_age": age_told(now - checkpoint.created_at),
        "bytes": found.size,
        "events": [_event(one) for one in islice(read_events(source, found), events)],
    }


def _event(event: BundleEvent) -> dict[str, Any]:
    receipt, told = Receipt.decode(event.receipt), event.metadata
    return {
        "seq": receipt.stream_seq,
        "leaf_hash": receipt.leaf_hash.hex(),
        "hub_commit_time": receipt.hub_ts,
        "is_disclosed": event.body_key is not None,
        "event_type": told.event_type if told else None,
        "subject_id": told.subject_id if told else None,
        "principal_id": told.principal_id.hex() if told else None,
        "event_time": told.event_time if told else None,
        "origin": told.origin if told else None,
    }
