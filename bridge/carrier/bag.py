"""The tag files of a BagIt bag (RFC 8493), as text: no clock, host or user has a part in them."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Final

from bridge.carrier.carrier import Carrier
from bridge.carrier.ledger import LedgerEntry
from bridge.carrier.volume import volume_name
from bridge.words import words
from veen.digest import h

BAGIT: Final = "bagit.txt"
INFO: Final = "bag-info.txt"
LABEL: Final = "LABEL.txt"
CARRIER: Final = "carrier.cbor"
MANIFEST: Final = "manifest-sha256.txt"
TAGMANIFEST: Final = "tagmanifest-sha256.txt"
SIGNATURE: Final = "carrier.sig"
DATA: Final = "data"
TAGGED: Final = (LABEL, INFO, BAGIT, CARRIER, MANIFEST)
"""What the tagmanifest covers, in its order."""


def tag_files(carrier: Carrier, bag: int) -> dict[str, bytes]:
    """Every tag file of one bag but the signature, by name."""
    entry = carrier.ledger.tail[-1] if carrier.ledger else None
    files = {
        LABEL: _label(carrier, bag, entry).encode(),
        INFO: _info(carrier, bag, entry).encode(),
        BAGIT: b"BagIt-Version: 1.0\nTag-File-Character-Encoding: UTF-8\n",
        CARRIER: carrier.encode(),
        MANIFEST: _manifest(carrier, bag),
    }
    return {**files, TAGMANIFEST: tagmanifest(files)}


def tagmanifest(files: Mapping[str, bytes]) -> bytes:
    return "".join(f"{h(files[name]).hex()}  {name}\n" for name in TAGGED).encode()


def bag_name(carrier: Carrier, bag: int) -> str:
    """A name for the directory: at most 64 of a-z, 0-9, . and -; it tells, and is not trusted."""
    entry = carrier.ledger.tail[-1] if carrier.ledger else None
    if entry is None:
        stem = f"sealed-{carrier.set_id.hex()[:12]}"
    elif entry.bundle_id is None:
        stem = f"{entry.hub_id.hex()[:6]}-heartbeat-{entry.n}-{entry.checkpoint_id.hex()[:12]}"
    else:
        stream = h(entry.stream.encode()).hex()[:6]
        stem = f"{entry.hub_id.hex()[:6]}-{stream}-{entry.from_seq}-{entry.bundle_id.hex()[:12]}"
    return stem if carrier.bags == 1 else f"{stem}-{bag}of{carrier.bags}"


def volume_path(carrier: Carrier, index: int) -> str:
    return f"{DATA}/{volume_name(index, carrier.data)}"


def _manifest(carrier: Carrier, bag: int) -> bytes:
    lines = [
        f"{one.file_hash.hex()}  {volume_path(carrier, index)}\n"
        for index, one in enumerate(carrier.volumes)
        if one.bag == bag
    ]
    return "".join(lines).encode()


def _info(carrier: Carrier, bag: int, entry: LedgerEntry | None) -> str:
    sizes = [one.size for one in carrier.volumes if one.bag == bag]
    lines = [f"Payload-Oxum: {sum(sizes)}.{len(sizes)}"]
    if entry is not None:
        identifier = entry.bundle_id or entry.checkpoint_id
        lines += [
            f"Source-Organization: veen hub {entry.hub_id.hex()}",
            f"External-Identifier: {identifier.hex()}",
            f"Bagging-Date: {datetime.fromtimestamp(entry.created_at, UTC):%Y-%m-%d}",
        ]
    lines += [
        f"Bag-Group-Identifier: {carrier.set_id.hex()}",
        f"Bag-Count: {bag} of {carrier.bags}",
    ]
    return "".join(f"{line}\n" for line in lines)


def _label(carrier: Carrier, bag: int, entry: LedgerEntry | None) -> str:
    names = [
        volume_name(index, carrier.data)
        for index, one in enumerate(carrier.volumes)
        if one.bag == bag
    ]
    lines = [
        "Carrier of the VEEN air-gap bridge (AGB0)",
        "",
        f"Medium      {bag} of {carrier.bags}",
        f"Volumes     {', '.join(names)} of {carrier.data} data and {carrier.parity} parity",
        f"Set         {carrier.set_id.hex()[:16]}",
        *_contents(entry),
        "",
        "Check with stock tools, in this directory:",
        f"    sha256sum -c {MANIFEST}",
        f"    sha256sum -c {TAGMANIFEST}",
        f"Without {SIGNATURE} the carrier was not finished and must not be used.",
    ]
    return "".join(f"{line}\n" for line in lines)


def _contents(entry: LedgerEntry | None) -> list[str]:
    if entry is None:
        return ["Contents    sealed to the receiving zone"]
    if entry.bundle_id is None:
        return [f"Contents    heartbeat {entry.n}, checkpoint {entry.checkpoint_id.hex()[:16]}"]
    count = entry.to_seq - entry.from_seq + 1
    return [
        f"Hub         {entry.hub_id.hex()[:16]}",
        f"Stream      {entry.stream.encode('unicode_escape').decode()}",
        f"Events      {entry.from_seq} to {entry.to_seq} ({count})",
        f"Bundle      {entry.bundle_id.hex()[:16]}",
        f"Words       {words(entry.bundle_id)}",
    ]
