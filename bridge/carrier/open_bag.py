"""Reading a bag from a medium that nobody vouches for: known names only, no links, no devices."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Final
from unicodedata import normalize

from bridge.carrier.bag import CARRIER, DATA, SIGNATURE, TAGGED, TAGMANIFEST, tagmanifest
from bridge.carrier.bag_path import BagPath, name_in_text
from bridge.carrier.carrier import FORMAT, SIGNATURE_BYTES, Carrier, CarrierSig
from bridge.carrier.directory import Directory
from bridge.carrier.volume import HEADER_BYTES, VolumeHeader
from bridge.printable import printable
from bridge.refusal import Fault, Refused
from veen.errors import Malformed, WrongVersion

MAX_ENTRIES: Final = 1024
MAX_TAG_BYTES: Final = 1 << 20
_NEWER: Final = re.compile(rb"[\xa0-\xbf]\x01([\x02-\x1b])")
"""A map whose first key is 1, and a number behind it that is more than 1."""
_LARGE: Final = 24
"""What does not fit into one byte of CBOR is this at least."""


@dataclass(frozen=True, slots=True)
class Found:
    """A volume on a medium: an open file, and what its header says."""

    name: str
    fd: int
    size: int
    header: VolumeHeader


class Bag:
    """One bag; files stay open until it is closed, so that what was checked is what is read."""

    def __init__(self, where: Path | BagPath) -> None:
        place = BagPath.of(where) if isinstance(where, Path) else where
        self.notes: list[str] = []
        self._stack = ExitStack()
        self._name = name_in_text(place.name)
        try:
            self._root = self._opened(place.open, str(place))
            # First of all: what has no whole signature was not finished, whatever else is in it.
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
        """The key that signed the bag, all of whose tag files are as they were then."""
        try:
            found = CarrierSig.decode(self._signature)
        except Malformed as error:
            told = f"{self._name}: {SIGNATURE}: {error}"
            raise Refused(Fault.CARRIER_FORMAT, told) from error
        if not found.is_valid(self._tagmanifest):
            raise Refused(Fault.CARRIER_SIG, f"{self._name}: {SIGNATURE} does not hold")
        return found.signer

    def volumes(self) -> Iterator[Found]:
        """Every volume of the set in this bag, by name; what is none is noted and left alone."""
        try:
            data = self._opened(lambda: self._root.directory(DATA), DATA)
        except Refused:
            self.notes.append(f"{self._name}: no readable directory {DATA}")
            return
        for name in self._list(data):
            found = self._volume(name, data)
            if found is None or found.header.set_id != self.carrier.set_id:
                told = "no volume of this set; ignored"
                self.notes.append(f"{self._name}: {DATA}/{printable(name)}: {told}")
            else:
                yield found

    def _volume(self, name: str, data: Directory) -> Found | None:
        try:
            fd, size = _open(name, data)
        except OSError:
            return None
        try:
            found = Found(name, fd, size, VolumeHeader.decode(os.pread(fd, HEADER_BYTES, 0)))
        except (OSError, Malformed):
            os.close(fd)
            return None
        self._stack.callback(os.close, fd)
        return found

    def _read_signature(self) -> bytes:
        raw = self._read_tag(SIGNATURE)
        if len(raw) < SIGNATURE_BYTES:
            raise Refused(
                Fault.INCOMPLETE,
                f"{self._name}: {SIGNATURE} has {len(raw)} bytes of {SIGNATURE_BYTES}: it was not "
                "finished",
                offset=len(raw),
            )
        return raw

    def _read_tags(self) -> bytes:
        """The tagmanifest, once every file it lists is as it says."""
        tags = {name: self._read_tag(name) for name in (*TAGGED, TAGMANIFEST)}
        if tagmanifest(tags) != tags[TAGMANIFEST]:
            raise Refused(Fault.TAG_FILE, f"{self._name}: {_changed(tags)}")
        self._carrier = tags[CARRIER]
        return tags[TAGMANIFEST]

    def _read_tag(self, name: str) -> bytes:
        try:
            fd, size = _open(name, self._root)
            with os.fdopen(fd, "rb") as file:
                raw = file.read(MAX_TAG_BYTES + 1)
        except FileNotFoundError:
            hint = ": it was not finished" if name == SIGNATURE else ""
            raise Refused(Fault.INCOMPLETE, f"{self._name}: {name} is missing{hint}") from None
        except OSError as error:
            told = f"{self._name}: {name} cannot be read: {error.strerror}"
            raise Refused(Fault.MEDIUM, told) from error
        if len(raw) > MAX_TAG_BYTES:
            raise Refused(Fault.MEDIUM, f"{self._name}: {name} has {size} bytes")
        return raw

    def _opened(self, opening: Callable[[], Directory], what: str) -> Directory:
        try:
            found = opening()
        except OSError as error:
            told = f"{printable(what)} cannot be read as a directory: {error.strerror}"
            raise Refused(Fault.MEDIUM, told) from error
        return self._stack.enter_context(found)

    def _list(self, directory: Directory) -> list[str]:
        try:
            with os.scandir(directory.fd) as entries:
                names = [entry.name for entry in islice(entries, MAX_ENTRIES + 1)]
        except OSError as error:
            told = f"{self._name} cannot be listed: {error.strerror}"
            raise Refused(Fault.MEDIUM, told) from error
        if len(names) > MAX_ENTRIES:
            raise Refused(Fault.MEDIUM, f"{self._name}: more than {MAX_ENTRIES} files")
        if len({folded(name) for name in names}) != len(names):
            raise Refused(Fault.MEDIUM, f"{self._name}: two names differ in case or form alone")
        return sorted(names)

    def _note_strangers(self) -> None:
        known = {*TAGGED, TAGMANIFEST, SIGNATURE, DATA}
        for name in self._list(self._root):
            if name not in known:
                self.notes.append(f"{self._name}: {printable(name)}: not of the bag; ignored")


def folded(name: str) -> str:
    """What a file system that knows neither case nor form would take a name for."""
    return normalize("NFC", normalize("NFC", name).casefold())


def _open(name: str, directory: Directory) -> tuple[int, int]:
    """A regular file and its size; a link, a device or a file on another device is an OSError."""
    fd = directory.file(name)
    return fd, os.fstat(fd).st_size


def _carrier(raw: bytes, where: str) -> Carrier:
    _refuse_newer(raw, where)
    try:
        return Carrier.decode(raw)
    except WrongVersion as error:
        told = f"{where}: {CARRIER}: {error}"
        raise Refused(Fault.CARRIER_VERSION, told) from error
    except Malformed as error:
        raise Refused(Fault.CARRIER_FORMAT, f"{where}: {CARRIER}: {error}") from error


def _refuse_newer(raw: bytes, where: str) -> None:
    """The version comes first, and is looked at before fields that only a newer format has."""
    found = _NEWER.match(raw)
    if found is not None:
        version = min(found[1][0], _LARGE)
        told = f"{where}: needs >= v{version} of the format of carriers, this is v{FORMAT}"
        raise Refused(Fault.CARRIER_VERSION, told)


def _changed(tags: dict[str, bytes]) -> str:
    """Which tag file is not the one that the tagmanifest lists."""
    listed = tags[TAGMANIFEST].splitlines(keepends=True)
    due = tagmanifest(tags).splitlines(keepends=True)
    wrong = [name for name, line in zip(TAGGED, due, strict=True) if line not in listed]
    return f"{', '.join(wrong) or TAGMANIFEST} is not as {TAGMANIFEST} says"
