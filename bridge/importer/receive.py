"""Taking a bag in from a place that nobody vouches for: a copy is made once, and all that follows
is about that copy (AGB0 4.5).

Links, devices and pipes are never opened. Nothing is written to where the bag comes from. Only the
volumes that the signed table lists are copied, so that nothing that lies beside them costs room.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from bridge.carrier.bag import CARRIER, DATA
from bridge.carrier.bag_path import FOLDER, BagPath, carrier_name
from bridge.carrier.carrier import Carrier
from bridge.carrier.directory import Directory
from bridge.carrier.open_bag import MAX_TAG_BYTES
from bridge.carrier.volume import HEADER_BYTES, VolumeHeader, volume_name
from bridge.carrier.watch import Count
from bridge.importer.signed_bag import TAG_FILES, SignedBag, entries, unreadable
from bridge.medium_bags import is_bag, listed
from bridge.printable import printable
from bridge.refusal import Fault, Refused
from veen import durable
from veen.client.progress import Progress, untold
from veen.digest import Hasher, h
from veen.errors import Malformed

_NEW: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_BLOCK: Final = 1 << 20
_NUMBER: Final = re.compile(r"([0-9]+)")
MAX_NAME: Final = 255


@dataclass(frozen=True, slots=True)
class Received:
    """A bag as it was copied: where it lies, and the hash of the list of its files' hashes."""

    root: Path
    sha256: bytes


def bags_on(medium: Path) -> list[BagPath]:
    """The bags that a medium holds: those in its folder ``agb0``, itself, or those in it.

    They are in the order of the numbers in their names, which tell where a bundle begins. One that
    cannot be listed, or holds more than any exporter writes, is Refused.
    """
    whole = BagPath.of(medium)
    if len(whole.parts) > 1:
        return [whole]
    try:
        with Directory.root(whole.root) as root:
            if not whole.parts and root.exists(CARRIER):
                return [whole]
            if root.exists(FOLDER):
                return _in_folder(whole.root, root)
            return [BagPath(whole.root, (name,)) for name in _names(root)]
    except OSError as error:
        raise unreadable(medium.name, error) from error


def _in_folder(medium: Path, root: Directory) -> list[BagPath]:
    """A folder that is a link, or on another device, is one bag, and is refused as such."""
    try:
        with root.directory(FOLDER) as folder:
            return [BagPath(medium, (FOLDER, name)) for name in _names(folder)]
    except OSError:
        return [BagPath(medium, (FOLDER,))]


def _names(directory: Directory) -> list[str]:
    names = [name for name in listed(directory) if not name.startswith(".")]
    return [name for name in sorted(names, key=_by_numbers) if is_bag(directory, name)]


def _by_numbers(name: str) -> list[tuple[int, str]]:
    """2 before 10; a name that no exporter writes sorts somewhere, and the same every time."""
    parts = _NUMBER.split(name[:MAX_NAME])
    return [(int(one) if one.isascii() and one.isdigit() else 0, one) for one in parts]


def partial_name(bag: BagPath, inbox: Path) -> Path:
    """Where a bag of a medium is copied to before it is whole; a name that is free without its
    dot, so that neither the same bag again nor another of its name is in the way.
    """
    plain, number = carrier_name(bag.name), 1
    name = plain
    while os.path.lexists(inbox / name):
        number += 1
        name = f"{plain}-{number}"
    return inbox / f".{name}"


def fetch(bag: SignedBag, partial: Path, progress: Progress = untold) -> None:
    """Copy a bag from a medium into the inbox, where it appears whole or not at all."""
    copy_bag(bag, partial, progress)
    durable.rename(partial, partial.with_name(partial.name.removeprefix(".")))


def copy_bag(bag: SignedBag, target: Path, progress: Progress = untold) -> Received:
    """Copy the files of a bag; the copy is to be checked as if nothing had been checked before.

    ``progress`` hears of the bytes of its volumes.
    """
    count = Count(bag.size, progress)
    target.mkdir(mode=durable.DIR_MODE)
    (target / DATA).mkdir(mode=durable.DIR_MODE)
    with ExitStack() as closing:
        root = closing.enter_context(_opened(bag.where.open, bag.where.name))
        names = {name for name, _ in entries(root, bag.where.name)}
        lines = [_copy_tag(root, name, target) for name in TAG_FILES if name in names]
        if DATA in names:
            data = closing.enter_context(_opened(lambda: root.directory(DATA), DATA))
            lines += _copy_volumes(data, target / DATA, bag.carrier, count)
    durable.sync_directory(target / DATA)
    durable.sync_directory(target)
    return Received(target, h("".join(sorted(lines)).encode()))


def _opened(opening: Callable[[], Directory], what: str) -> Directory:
    try:
        return opening()
    except OSError as error:
        raise unreadable(what, error) from error


def _copy_tag(root: Directory, name: str, target: Path) -> str:
    digest = _copy(name, root, target / name, MAX_TAG_BYTES + 1, Count(0))
    return f"{digest.hex()}  {name}\n"


def _copy_volumes(data: Directory, target: Path, carrier: Carrier, count: Count) -> Iterator[str]:
    """Each volume of the table once: the first that has its hash, or else the first that should.

    A damaged one is copied so that the copy tells what is wrong with it.
    """
    copied: dict[int, bytes] = {}
    for name, _ in entries(data, DATA):
        index = _index(name, data, carrier)
        if index is None or copied.get(index) == carrier.volumes[index].file_hash:
            continue
        place, due = target / volume_name(index, carrier.data), carrier.volumes[index]
        other = place.with_suffix(".other")
        digest = _copy(name, data, other, due.size, count)
        if index not in copied or digest == due.file_hash:
            other.replace(place)
            copied[index] = digest
        else:
            other.unlink()
    for index, digest in copied.items():
        yield f"{digest.hex()}  {DATA}/{volume_name(index, carrier.data)}\n"


def _index(name: str, data: Directory, carrier: Carrier) -> int | None:
    """Which volume of the table a file says it is, if it is not larger than that one."""
    try:
        source = data.file(name)
    except OSError:
        return None
    try:
        header = VolumeHeader.decode(os.pread(source, HEADER_BYTES, 0))
        size = os.fstat(source).st_size
    except (OSError, Malformed):
        return None
    finally:
        os.close(source)
    is_listed = header.set_id == carrier.set_id and header.index < len(carrier.volumes)
    return header.index if is_listed and size <= carrier.volumes[header.index].size else None


def _copy(name: str, folder: Directory, target: Path, most: int, count: Count) -> bytes:
    """Copy at most so many bytes of a file and sync them; their hash."""
    digest, at = Hasher(), 0
    try:
        source = folder.file(name)
    except OSError as error:
        raise unreadable(name, error) from error
    out = os.open(target, _NEW, durable.FILE_MODE)
    try:
        while block := _read(source, min(_BLOCK, most - at + 1), name):
            if at + len(block) > most:
                raise Refused(Fault.BUNDLE_SIZE, f"{printable(name)} goes beyond {most} bytes")
            durable.write_at(out, block, at)
            digest.update(block)
            at += len(block)
            count.add(len(block))
        durable.sync(out)
    finally:
        os.close(source)
        os.close(out)
    return digest.digest()


def _read(source: int, size: int, name: str) -> bytes:
    try:
        return os.read(source, size)
    except OSError as error:
        raise unreadable(name, error) from error
