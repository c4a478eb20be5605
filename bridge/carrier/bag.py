"""BagIt bags (RFC 8493): the tag files that are written, and a reader for untrusted media.

The tag files depend on the carrier alone, not on a clock, host or user. The reader opens known
names only, and neither links nor devices.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import Final
from unicodedata import normalize

from bridge.carrier.directory import BagPath, Directory, name_in_text
from bridge.carrier.format import (
    FORMAT,
    HEADER_BYTES,
    SIGNATURE_BYTES,
    Carrier,
    CarrierLedgerEntry,
    CarrierSig,
    VolumeHeader,
    volume_name,
)
from bridge.errors import CarrierFault, CarrierRefused, printable, words
from veen.digest import h
from veen.errors import Malformed, WrongVersion

BAGIT: Final = "bagit.txt"
INFO: Final = "bag-info.txt"
LABEL: Final = "LABEL.txt"
CARRIER: Final = "carrier.cbor"
MANIFEST: Final = "manifest-sha256.txt"
TAGMANIFEST: Final = "tagmanifest-sha256.txt"
SIGNATURE: Final = "carrier.sig"
DATA: Final = "data"
TAGGED: Final = (LABEL, INFO, BAGIT, CARRIER, MANIFEST)
"""The files in the tagmanifest, in order."""
MAX_ENTRIES: Final = 1024
MAX_TAG_BYTES: Final = 1 << 20
_NEWER: Final = re.compile(rb"[\xa0-\xbf]\x01([\x02-\x1b])")
"""A CBOR map whose first key is 1, with a value above 1."""
_LARGE: Final = 24
"""The least number that does not fit into the initial byte of CBOR."""


def tag_files(carrier: Carrier, bag: int) -> dict[str, bytes]:
    """Every tag file of a bag except the signature, by name."""
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
    """A name for the directory: at most 64 of a-z, 0-9, . and -; informative, and not trusted."""
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
        f"{volume.file_hash.hex()}  {volume_path(carrier, index)}\n"
        for index, volume in enumerate(carrier.volumes)
        if volume.bag == bag
    ]
    return "".join(lines).encode()


def _info(carrier: Carrier, bag: int, entry: CarrierLedgerEntry | None) -> str:
    sizes = [volume.size for volume in carrier.volumes if volume.bag == bag]
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


def _label(carrier: Carrier, bag: int, entry: CarrierLedgerEntry | None) -> str:
    names = [
        volume_name(index, carrier.data)
        for index, volume in enumerate(carrier.volumes)
        if volume.bag == bag
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


def _contents(entry: CarrierLedgerEntry | None) -> list[str]:
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


@dataclass(frozen=True, slots=True)
class OpenVolume:
    """A volume on a medium: an open file, and its header."""

    name: str
    fd: int
    size: int
    header: VolumeHeader


class Bag:
    """A bag; its files stay open until it is closed, so that what was verified is what is read."""

    def __init__(self, where: Path | BagPath) -> None:
        place = BagPath.of(where) if isinstance(where, Path) else where
        self.notes: list[str] = []
        self._stack = ExitStack()
        self._name = name_in_text(place.name)
        try:
            self._root = self._opened(place.open, str(place))
            # First, since a bag without a complete signature was not finished, whatever is in it.
            self._signature = self._read_signature()
            self._tagmanifest = self._read_tags()
            self.carrier = _carrier(self._carrier, self._name)
            self._note_strangers()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        self._stack.close()

    def signer(self) -> bytes:
        """The key whose signature over the tag files holds."""
        try:
            sig = CarrierSig.decode(self._signature)
        except Malformed as error:
            detail = f"{self._name}: {SIGNATURE}: {error}"
            raise CarrierRefused(CarrierFault.CARRIER_FORMAT, detail) from error
        if not sig.is_valid(self._tagmanifest):
            raise CarrierRefused(
                CarrierFault.CARRIER_SIG, f"{self._name}: the signature in {SIGNATURE} is not valid"
            )
        return sig.signer

    def volumes(self) -> Iterator[OpenVolume]:
        """Every volume of the set in this bag, by name; other files are noted and ignored."""
        try:
            data = self._opened(lambda: self._root.directory(DATA), DATA)
        except CarrierRefused:
            self.notes.append(f"{self._name}: no readable directory {DATA}")
            return
        for name in self._list(data):
            volume = self._volume(name, data)
            if volume is None or volume.header.set_id != self.carrier.set_id:
                detail = "not a volume of this carrier; ignored"
                self.notes.append(f"{self._name}: {DATA}/{printable(name)}: {detail}")
            else:
                yield volume

    def _volume(self, name: str, data: Directory) -> OpenVolume | None:
        try:
            fd, size = _open(name, data)
        except OSError:
            return None
        try:
            volume = OpenVolume(name, fd, size, VolumeHeader.decode(os.pread(fd, HEADER_BYTES, 0)))
        except (OSError, Malformed):
            os.close(fd)
            return None
        self._stack.callback(os.close, fd)
        return volume

    def _read_signature(self) -> bytes:
        raw = self._read_tag(SIGNATURE)
        if len(raw) < SIGNATURE_BYTES:
            raise CarrierRefused(
                CarrierFault.INCOMPLETE,
                f"{self._name}: {SIGNATURE}: expected {SIGNATURE_BYTES} bytes, got {len(raw)}: it "
                "was "
                "not finished",
                offset=len(raw),
            )
        return raw

    def _read_tags(self) -> bytes:
        """The tagmanifest, after verifying every file it lists."""
        tags = {name: self._read_tag(name) for name in (*TAGGED, TAGMANIFEST)}
        if tagmanifest(tags) != tags[TAGMANIFEST]:
            raise CarrierRefused(CarrierFault.TAG_FILE, f"{self._name}: {_changed(tags)}")
        self._carrier = tags[CARRIER]
        return tags[TAGMANIFEST]

    def _read_tag(self, name: str) -> bytes:
        try:
            fd, size = _open(name, self._root)
            with os.fdopen(fd, "rb") as file:
                raw = file.read(MAX_TAG_BYTES + 1)
        except FileNotFoundError:
            hint = ": it was not finished" if name == SIGNATURE else ""
            raise CarrierRefused(
                CarrierFault.INCOMPLETE, f"{self._name}: {name} is missing{hint}"
            ) from None
        except OSError as error:
            detail = f"{self._name}: {name} cannot be read: {error.strerror}"
            raise CarrierRefused(CarrierFault.MEDIUM, detail) from error
        if len(raw) > MAX_TAG_BYTES:
            raise CarrierRefused(
                CarrierFault.MEDIUM,
                f"{self._name}: {name}: expected at most {MAX_TAG_BYTES} bytes, got {size}",
            )
        return raw

    def _opened(self, opening: Callable[[], Directory], what: str) -> Directory:
        try:
            directory = opening()
        except OSError as error:
            detail = f"{printable(what)} cannot be read as a directory: {error.strerror}"
            raise CarrierRefused(CarrierFault.MEDIUM, detail) from error
        return self._stack.enter_context(directory)

    def _list(self, directory: Directory) -> list[str]:
        try:
            with os.scandir(directory.fd) as entries:
                names = [entry.name for entry in islice(entries, MAX_ENTRIES + 1)]
        except OSError as error:
            detail = f"{self._name} cannot be listed: {error.strerror}"
            raise CarrierRefused(CarrierFault.MEDIUM, detail) from error
        if len(names) > MAX_ENTRIES:
            raise CarrierRefused(
                CarrierFault.MEDIUM, f"{self._name}: expected at most {MAX_ENTRIES} files, got more"
            )
        if len({folded(name) for name in names}) != len(names):
            raise CarrierRefused(
                CarrierFault.MEDIUM, f"{self._name}: two names differ only in case or Unicode form"
            )
        return sorted(names)

    def _note_strangers(self) -> None:
        known = {*TAGGED, TAGMANIFEST, SIGNATURE, DATA}
        for name in self._list(self._root):
            if name not in known:
                self.notes.append(f"{self._name}: {printable(name)}: not a file of a bag; ignored")


def folded(name: str) -> str:
    """A name as compared by a file system that ignores case and Unicode form."""
    return normalize("NFC", normalize("NFC", name).casefold())


def _open(name: str, directory: Directory) -> tuple[int, int]:
    """A regular file and its size; a link, a device or a file on another device is an OSError."""
    fd = directory.file(name)
    return fd, os.fstat(fd).st_size


def _carrier(raw: bytes, where: str) -> Carrier:
    _verify_version(raw, where)
    try:
        return Carrier.decode(raw)
    except WrongVersion as error:
        detail = f"{where}: {CARRIER}: {error}"
        raise CarrierRefused(CarrierFault.CARRIER_VERSION, detail) from error
    except Malformed as error:
        raise CarrierRefused(CarrierFault.CARRIER_FORMAT, f"{where}: {CARRIER}: {error}") from error


def _verify_version(raw: bytes, where: str) -> None:
    """Refuse a newer format, before fields are decoded that only a newer format has."""
    match = _NEWER.match(raw)
    if match is not None:
        version = min(match[1][0], _LARGE)
        detail = f"{where}: needs >= v{version} of the format of carriers, this is v{FORMAT}"
        raise CarrierRefused(CarrierFault.CARRIER_VERSION, detail)


def _changed(tags: dict[str, bytes]) -> str:
    """The tag files that differ from the tagmanifest, as text."""
    listed = tags[TAGMANIFEST].splitlines(keepends=True)
    expected = tagmanifest(tags).splitlines(keepends=True)
    wrong = [name for name, line in zip(TAGGED, expected, strict=True) if line not in listed]
    return f"{', '.join(wrong) or TAGMANIFEST} is not as {TAGMANIFEST} says"
