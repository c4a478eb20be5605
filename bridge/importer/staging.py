"""Staging of a bag from an untrusted place: checked where it is, then copied (AGB0 4.5).

A bag is copied only if a trusted exporter has signed it, which is decided from its tag files alone,
whose sizes are bounded; of any other bag only a fingerprint is stored. Everything after the copy is
about the copy. Links, devices and pipes are never opened, nothing is written to the source, and
only volumes that the signed manifest lists are copied. Disk space is checked beforehand.
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
from bridge.errors import CarrierFault, CarrierRefused, printable
from bridge.settings import ImportSettings
from bridge.trust import TrustStore
from veen.digest import Hasher, h
from veen.errors import Malformed, VeenError
from veen.system import durable
from veen.system.environment import Progress, ProgressCounter, no_progress

TAG_FILES: Final = (*sorted((*TAGGED, TAGMANIFEST, SIGNATURE)),)
_NEW: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_BLOCK: Final = 1 << 20
_NUMBER: Final = re.compile(r"([0-9]+)")
MAX_NAME: Final = 255


@dataclass(frozen=True, slots=True)
class SignedBag:
    """A bag whose tag files match the signature of a trusted exporter; its volumes are unread.

    ``size`` is the maximum size of a copy of its volumes.
    """

    where: BagPath
    carrier: Carrier
    size: int


def check_signed(where: BagPath, trust: TrustStore, most: int) -> SignedBag:
    """Refuse a bag unless a trusted exporter has signed it, with volumes of at most ``most`` bytes.
    A bag with links or devices is refused as well.
    """
    size = _verify_listing(where)
    with CarrierSet([where]) as carrier_set:
        carrier_set.verify_signatures(trust)
        announced = sum(volume.size for volume in carrier_set.carrier.volumes)
    if announced > most:
        detail = (
            f"{name_in_text(where.name)}: expected volumes of at most {most} bytes "
            f"(max_carrier_bytes), got {announced}"
        )
        raise CarrierRefused(CarrierFault.BUNDLE_SIZE, detail)
    return SignedBag(where, carrier_set.carrier, min(size, announced))


def entries(directory: Directory, what: str) -> list[tuple[str, os.stat_result]]:
    """The names in a directory with their status, without opening any."""
    try:
        with os.scandir(directory.fd) as scanned:
            names = sorted(entry.name for entry in islice(scanned, MAX_ENTRIES + 1))
        if len(names) > MAX_ENTRIES:
            raise CarrierRefused(
                CarrierFault.MEDIUM, f"{printable(what)}: more than {MAX_ENTRIES} files"
            )
        listed = [(name, directory.status(name)) for name in names]
    except OSError as error:
        raise unreadable(what, error) from error
    if len({folded(name) for name in names}) != len(names):
        raise CarrierRefused(
            CarrierFault.MEDIUM, f"{printable(what)}: two names differ in case or form alone"
        )
    for name, status in listed:
        if stat.S_IFMT(status.st_mode) not in (stat.S_IFREG, stat.S_IFDIR):
            raise CarrierRefused(
                CarrierFault.MEDIUM, f"{printable(name)} is a link, a device or a pipe"
            )
    return listed


def unreadable(name: str, error: OSError) -> CarrierRefused:
    return CarrierRefused(
        CarrierFault.MEDIUM, f"{printable(name)} cannot be read: {error.strerror}"
    )


def fingerprint(where: BagPath) -> list[str]:
    """A line for each tag file with its hash, and for each volume with its size; volumes are not
    read. The lines depend on the bag alone.
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
            volumes = entries(data, DATA)
    except OSError as error:
        return [f"unreadable ({error.strerror})  {DATA}\n"]
    except CarrierRefused as error:
        return [f"{error.detail}\n"]
    return [f"{status.st_size} bytes  {DATA}/{printable(name)}\n" for name, status in volumes]


def _verify_listing(where: BagPath) -> int:
    """The total size of the volumes; CarrierRefused if the bag has an entry of a forbidden kind."""
    try:
        with where.open() as root:
            entries(root, where.name)
            if not root.exists(DATA):
                return 0
            with root.directory(DATA) as data:
                volumes = entries(data, DATA)
    except OSError as error:
        raise unreadable(where.name, error) from error
    return sum(status.st_size for _, status in volumes if stat.S_ISREG(status.st_mode))


@dataclass(frozen=True, slots=True)
class Received:
    """A copied bag, and the hash of the list of its files' hashes."""

    root: Path
    sha256: bytes


def bags_on(medium: Path) -> list[BagPath]:
    """The bags of a medium: those in its directory ``agb0``, else itself, else those in it.

    They are in numeric order of their names, which contain the first sequence number. A medium
    that cannot be listed, or has more entries than any exporter writes, is CarrierRefused.
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
    """The bags in ``agb0``; if that is a link or on another device, it is refused as a bag."""
    try:
        with root.directory(FOLDER) as folder:
            return [BagPath(medium, (FOLDER, name)) for name in _names(folder)]
    except OSError:
        return [BagPath(medium, (FOLDER,))]


def _names(directory: Directory) -> list[str]:
    names = [name for name in listed(directory) if not name.startswith(".")]
    return [name for name in sorted(names, key=_by_numbers) if is_bag(directory, name)]


def _by_numbers(name: str) -> list[tuple[int, str]]:
    """A numeric sort key, 2 before 10; deterministic for any name."""
    parts = _NUMBER.split(name[:MAX_NAME])
    return [(int(part) if part.isascii() and part.isdigit() else 0, part) for part in parts]


def partial_name(bag: BagPath, inbox: Path) -> Path:
    """The temporary path of a copy, a dot file; without its dot the name is unused, so that
    neither the same bag nor another of its name conflicts.
    """
    plain, number = carrier_name(bag.name), 1
    name = plain
    while os.path.lexists(inbox / name):
        number += 1
        name = f"{plain}-{number}"
    return inbox / f".{name}"


def fetch(bag: SignedBag, partial: Path, progress: Progress = no_progress) -> None:
    """Copy a bag from a medium into the inbox, atomically."""
    copy_bag(bag, partial, progress)
    durable.rename(partial, partial.with_name(partial.name.removeprefix(".")))


def copy_bag(bag: SignedBag, target: Path, progress: Progress = no_progress) -> Received:
    """Copy the files of a bag; the copy must be verified as if nothing had been verified before.

    ``progress`` counts the bytes of its volumes.
    """
    count = ProgressCounter(bag.size, progress)
    target.mkdir(mode=durable.DIR_MODE)
    (target / DATA).mkdir(mode=durable.DIR_MODE)
    with ExitStack() as stack:
        root = stack.enter_context(_opened(bag.where.open, bag.where.name))
        names = {name for name, _ in entries(root, bag.where.name)}
        lines = [_copy_tag(root, name, target) for name in TAG_FILES if name in names]
        if DATA in names:
            data = stack.enter_context(_opened(lambda: root.directory(DATA), DATA))
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
    digest = _copy(name, root, target / name, MAX_TAG_BYTES + 1, ProgressCounter(0))
    return f"{digest.hex()}  {name}\n"


def _copy_volumes(
    data: Directory, target: Path, carrier: Carrier, count: ProgressCounter
) -> Iterator[str]:
    """Copy each volume of the table once: the first file with its hash, else the first file of
    that index.

    A damaged volume is copied so that the copy shows the damage.
    """
    copied: dict[int, bytes] = {}
    for name, _ in entries(data, DATA):
        index = _index(name, data, carrier)
        if index is None or copied.get(index) == carrier.volumes[index].file_hash:
            continue
        place, listed_volume = target / volume_name(index, carrier.data), carrier.volumes[index]
        other = place.with_suffix(".other")
        digest = _copy(name, data, other, listed_volume.size, count)
        if index not in copied or digest == listed_volume.file_hash:
            other.replace(place)
            copied[index] = digest
        else:
            other.unlink()
    for index, digest in copied.items():
        yield f"{digest.hex()}  {DATA}/{volume_name(index, carrier.data)}\n"


def _index(name: str, data: Directory, carrier: Carrier) -> int | None:
    """The index of the volume that a file claims to be, if it is not larger than that volume."""
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


def _copy(name: str, folder: Directory, target: Path, most: int, count: ProgressCounter) -> bytes:
    """Copy a file of at most ``most`` bytes, sync it, and return its hash."""
    digest, at = Hasher(), 0
    try:
        source = folder.file(name)
    except OSError as error:
        raise unreadable(name, error) from error
    out = os.open(target, _NEW, durable.FILE_MODE)
    try:
        while block := _read(source, min(_BLOCK, most - at + 1), name):
            if at + len(block) > most:
                raise CarrierRefused(
                    CarrierFault.BUNDLE_SIZE,
                    f"{printable(name)}: expected at most {most} bytes, got more",
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
    """The disk, or a quota, has no space for a carrier; nothing was copied."""

    error_code = "NO_ROOM"


def verify_space(settings: ImportSettings, bags: Sequence[SignedBag], copies: int) -> None:
    """Raise InsufficientSpace unless ``copies`` of the bags and their plain content fit on disk,
    with the reserve left free.
    """
    file_system = os.statvfs(settings.state)
    free = file_system.f_bavail * file_system.f_frsize
    needed = copies * sum(bag.size for bag in bags) + _in_the_clear(bags[0].carrier, settings)
    if needed + settings.reserve_bytes > free:
        raise InsufficientSpace(
            f"{settings.state}: expected {needed} bytes of free disk space for this carrier and "
            f"{settings.reserve_bytes} beyond them (reserve_bytes), got {free}; free disk space "
            "and run this again"
        )


def bytes_below(folder: Path) -> int:
    """The disk usage below a directory, without following links."""
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
            # A carrier may be removed from the inbox at any time.
            continue
    return total


def _in_the_clear(carrier: Carrier, settings: ImportSettings) -> int:
    """The size of the unpacked content and of the copy for the scan, within the limits."""
    plain = carrier.compression.plain_len if carrier.compression else carrier.stored_len
    is_packed = carrier.compression is not None or carrier.encryption is not None
    return min(plain, settings.limits.max_bytes) * (is_packed + bool(settings.scan))
