"""Whether a bag is signed by a trusted exporter, found out where it lies and before it is copied.

Only tag files are read for it, and they are bounded. What no trusted exporter has signed is never
copied; all that is kept of it is a fingerprint.

Taking a bag in from a place that nobody vouches for: a copy is made once, and all that follows
is about that copy (AGB0 4.5).

Links, devices and pipes are never opened. Nothing is written to where the bag comes from. Only the
volumes that the signed table lists are copied, so that nothing that lies beside them costs room.

Whether there is room for a carrier, before anything of it is copied.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Final

from bridge.carrier.bag import (
    CARRIER,
    DATA,
    MAX_ENTRIES,
    MAX_TAG_BYTES,
    SIGNATURE,
    TAGGED,
    TAGMANIFEST,
    folded,
)
from bridge.carrier.directory import FOLDER, BagPath, Directory, carrier_name, name_in_text
from bridge.carrier.format import HEADER_BYTES, Carrier, VolumeHeader, volume_name
from bridge.carrier.medium import is_bag, listed
from bridge.carrier.reader import CarrierSet
from bridge.errors import CarrierFault, Refused, printable
from bridge.settings import ImportSettings
from bridge.trust import TrustStore
from veen.digest import Hasher, h
from veen.errors import Malformed, VeenError
from veen.system import durable
from veen.system.environment import Count, Progress, no_progress

TAG_FILES: Final = (*sorted((*TAGGED, TAGMANIFEST, SIGNATURE)),)


@dataclass(frozen=True, slots=True)
class SignedBag:
    """A bag whose tag files match the signature of a trusted exporter; its volumes are unread.

    ``size`` is how many bytes a copy of its volumes takes at most.
    """

    where: BagPath
    carrier: Carrier
    size: int


def check_signed(where: BagPath, trust: TrustStore, most: int) -> SignedBag:
    """Refused unless a trusted exporter has signed the bag, and for volumes of at most ``most``
    bytes. What a bag may not hold, as links and devices, is Refused as well.
    """
    size = _verify_listing(where)
    with CarrierSet([where]) as carrier_set:
        carrier_set.verify_signatures(trust)
        announced = sum(volume.size for volume in carrier_set.carrier.volumes)
    if announced > most:
        detail = f"{name_in_text(where.name)}: volumes of {announced} bytes, {most} are allowed"
        raise Refused(CarrierFault.BUNDLE_SIZE, detail)
    return SignedBag(where, carrier_set.carrier, min(size, announced))


def entries(directory: Directory, what: str) -> list[tuple[str, os.stat_result]]:
    """The names in a directory with what they are, looked at without opening any."""
    try:
        with os.scandir(directory.fd) as result:
            names = sorted(item.name for item in islice(result, MAX_ENTRIES + 1))
        if len(names) > MAX_ENTRIES:
            raise Refused(CarrierFault.MEDIUM, f"{printable(what)}: more than {MAX_ENTRIES} files")
        listed = [(name, directory.status(name)) for name in names]
    except OSError as error:
        raise unreadable(what, error) from error
    if len({folded(name) for name in names}) != len(names):
        raise Refused(
            CarrierFault.MEDIUM, f"{printable(what)}: two names differ in case or form alone"
        )
    for name, status in listed:
        if stat.S_IFMT(status.st_mode) not in (stat.S_IFREG, stat.S_IFDIR):
            raise Refused(CarrierFault.MEDIUM, f"{printable(name)} is a link, a device or a pipe")
    return listed


def unreadable(name: str, error: OSError) -> Refused:
    return Refused(CarrierFault.MEDIUM, f"{printable(name)} cannot be read: {error.strerror}")


def fingerprint(where: BagPath) -> list[str]:
    """A line for each tag file with its hash, and for each volume with its size; volumes are not
    read. The same bag has the same lines.
    """
    try:
        with where.open() as root:
            lines = [_tag_line(root, name) for name in TAG_FILES if root.exists(name)]
            return lines + _volume_lines(root)
    except OSError as error:
        return [f"unreadable: {error.strerror}\n"]


def digest_of(lines: list[str]) -> bytes:
    return h("".join(lines).encode())


def _tag_line(root: Directory, name: str) -> str:
    try:
        with os.fdopen(root.file(name), "rb") as file:
            raw = file.read(MAX_TAG_BYTES + 1)
    except OSError as error:
        return f"unreadable ({error.strerror})  {name}\n"
    return f"{h(raw).hex()}  {name}\n"


def _volume_lines(root: Directory) -> list[str]:
    if not root.exists(DATA):
        return []
    try:
        with root.directory(DATA) as data:
            result = entries(data, DATA)
    except OSError as error:
        return [f"unreadable ({error.strerror})  {DATA}\n"]
    except Refused as error:
        return [f"{error.detail}\n"]
    return [f"{status.st_size} bytes  {DATA}/{printable(name)}\n" for name, status in result]


def _verify_listing(where: BagPath) -> int:
    """How many bytes lie in the bag as volumes, once every entry is of a kind that may be there."""
    try:
        with where.open() as root:
            entries(root, where.name)
            if not root.exists(DATA):
                return 0
            with root.directory(DATA) as data:
                result = entries(data, DATA)
    except OSError as error:
        raise unreadable(where.name, error) from error
    return sum(item.st_size for _, item in result if stat.S_ISREG(item.st_mode))


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
    return [(int(part) if part.isascii() and part.isdigit() else 0, part) for part in parts]


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


def fetch(bag: SignedBag, partial: Path, progress: Progress = no_progress) -> None:
    """Copy a bag from a medium into the inbox, where it appears whole or not at all."""
    copy_bag(bag, partial, progress)
    durable.rename(partial, partial.with_name(partial.name.removeprefix(".")))


def copy_bag(bag: SignedBag, target: Path, progress: Progress = no_progress) -> Received:
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
                raise Refused(
                    CarrierFault.BUNDLE_SIZE, f"{printable(name)} goes beyond {most} bytes"
                )
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


class InsufficientSpace(VeenError):
    """The disk, or a quota, does not hold what letting a carrier in takes; nothing was copied."""


def verify_room(settings: ImportSettings, bags: Sequence[SignedBag], copies: int) -> None:
    """Refuse with NoRoom unless the bags fit so many times, and what they hold in the clear, and
    the reserve stays free.
    """
    result = os.statvfs(settings.state)
    free = result.f_bavail * result.f_frsize
    needed = copies * sum(bag.size for bag in bags) + _in_the_clear(bags[0].carrier, settings)
    if needed + settings.reserve_bytes > free:
        raise InsufficientSpace(
            f"letting it in takes {needed} bytes below {settings.state}, and {free} are free, of "
            f"which reserve_bytes keeps {settings.reserve_bytes}; make room and run this again"
        )


def bytes_below(folder: Path) -> int:
    """What lies below a folder takes on disk, without following any link."""
    total, left = 0, [folder]
    while left:
        try:
            with os.scandir(left.pop()) as entries:
                for entry in entries:
                    status = entry.stat(follow_symlinks=False)
                    total += max(status.st_size, 512 * status.st_blocks)
                    if entry.is_dir(follow_symlinks=False):
                        left.append(Path(entry.path))
        except FileNotFoundError:
            # Whoever brings carriers may take one away again.
            continue
    return total


def _in_the_clear(carrier: Carrier, settings: ImportSettings) -> int:
    """What is unpacked, and what the scan is given; nothing beyond the bounds is ever unpacked."""
    plain = carrier.compression.plain_len if carrier.compression else carrier.stored_len
    is_packed = carrier.compression is not None or carrier.encryption is not None
    return min(plain, settings.limits.max_bytes) * (is_packed + bool(settings.scan))
