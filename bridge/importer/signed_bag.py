"""Whether a bag is signed by a trusted exporter, found out where it lies and before it is copied.

Only tag files are read for it, and they are bounded. What no trusted exporter has signed is never
copied; all that is kept of it is a fingerprint.
"""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass
from itertools import islice
from typing import Final

from bridge.carrier.bag import DATA, SIGNATURE, TAGGED, TAGMANIFEST
from bridge.carrier.bag_path import BagPath, name_in_text
from bridge.carrier.carrier import Carrier
from bridge.carrier.directory import Directory
from bridge.carrier.open_bag import MAX_ENTRIES, MAX_TAG_BYTES, folded
from bridge.carrier.open_set import CarrierSet
from bridge.printable import printable
from bridge.refusal import Fault, Refused
from bridge.trust import TrustStore
from veen.digest import h

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
    with CarrierSet([where]) as found:
        found.verify_signatures(trust)
        announced = sum(one.size for one in found.carrier.volumes)
    if announced > most:
        told = f"{name_in_text(where.name)}: volumes of {announced} bytes, {most} are allowed"
        raise Refused(Fault.BUNDLE_SIZE, told)
    return SignedBag(where, found.carrier, min(size, announced))


def entries(directory: Directory, what: str) -> list[tuple[str, os.stat_result]]:
    """The names in a directory with what they are, looked at without opening any."""
    try:
        with os.scandir(directory.fd) as found:
            names = sorted(one.name for one in islice(found, MAX_ENTRIES + 1))
        if len(names) > MAX_ENTRIES:
            raise Refused(Fault.MEDIUM, f"{printable(what)}: more than {MAX_ENTRIES} files")
        listed = [(name, directory.status(name)) for name in names]
    except OSError as error:
        raise unreadable(what, error) from error
    if len({folded(name) for name in names}) != len(names):
        raise Refused(Fault.MEDIUM, f"{printable(what)}: two names differ in case or form alone")
    for name, status in listed:
        if stat.S_IFMT(status.st_mode) not in (stat.S_IFREG, stat.S_IFDIR):
            raise Refused(Fault.MEDIUM, f"{printable(name)} is a link, a device or a pipe")
    return listed


def unreadable(name: str, error: OSError) -> Refused:
    return Refused(Fault.MEDIUM, f"{printable(name)} cannot be read: {error.strerror}")


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
            found = entries(data, DATA)
    except OSError as error:
        return [f"unreadable ({error.strerror})  {DATA}\n"]
    except Refused as error:
        return [f"{error.told}\n"]
    return [f"{status.st_size} bytes  {DATA}/{printable(name)}\n" for name, status in found]


def _verify_listing(where: BagPath) -> int:
    """How many bytes lie in the bag as volumes, once every entry is of a kind that may be there."""
    try:
        with where.open() as root:
            entries(root, where.name)
            if not root.exists(DATA):
                return 0
            with root.directory(DATA) as data:
                found = entries(data, DATA)
    except OSError as error:
        raise unreadable(where.name, error) from error
    return sum(one.st_size for _, one in found if stat.S_ISREG(one.st_mode))
