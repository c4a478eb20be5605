"""Bringing the bags of a staged carrier to media, each to its own (AGB0 4.9)."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from bridge.carrier.bag import SIGNATURE, TAGMANIFEST
from bridge.carrier.bag_path import FOLDER, BagPath
from bridge.carrier.directory import Directory
from bridge.carrier.medium import (
    BadMedium,
    read_small,
    verify_room,
    verify_written,
    write_medium,
)
from bridge.carrier.open_bag import MAX_TAG_BYTES
from bridge.carrier.stage import Staged
from bridge.medium_verifier import has_verifier, put_verifier
from veen.client.progress import Progress, untold
from veen.durable import NoSpace, SyncFailed


@dataclass(frozen=True, slots=True, kw_only=True)
class Media:
    """Mounted media in the order of the bags; what does not have its own goes to the last.

    ``medium_id`` is how people tell this medium, or this set of them, from others.
    """

    roots: tuple[Path, ...]
    medium_id: str
    discard_unfinished: bool = False


def deliver(staged: Staged, media: Media, progress: Progress = untold) -> tuple[Path, ...]:
    """Every bag on its medium, synced and read back; or BadMedium, and nothing counts.

    Whether all media have room for what is to come is settled before the first byte. The standalone
    verifier lies beside the bags of each.
    """
    last = len(media.roots) - 1
    places = [(bag, media.roots[min(number, last)]) for number, bag in enumerate(staged.bags)]
    for medium in dict.fromkeys(media.roots):
        with _told(medium):
            due = [bag for bag, of in places if of == medium and not _is_there(medium, bag.name)]
            verify_room(due, medium)
            has_verifier(medium)
    delivered = tuple(_deliver(bag, medium, media, progress) for bag, medium in places)
    for medium in dict.fromkeys(medium for _, medium in places):
        with _told(medium):
            put_verifier(medium)
    return delivered


def medium_id(roots: Sequence[Path]) -> str:
    """A name for media that were not given one, from their file systems."""
    return "+".join(
        dict.fromkeys(f"fs-{os.statvfs(root).f_fsid & (1 << 64) - 1:016x}" for root in roots)
    )


def _deliver(bag: Path, medium: Path, media: Media, progress: Progress) -> Path:
    """Everything on the medium is opened by descriptor, so that no link leads elsewhere."""
    with _told(medium / FOLDER / bag.name):
        if _is_there(medium, bag.name):
            folder = BagPath(medium, (FOLDER,))
            with folder.open() as within:
                with within.directory(bag.name) as root:
                    if _is_finished(bag, root):
                        # An earlier run ended between its signature and the audit entry.
                        _refuse_another(bag, root)
                        verify_written(bag, root, progress)
                        return root.path
                _discard(within, bag.name, media)
        return write_medium(bag, medium, progress)


def _is_there(medium: Path, name: str) -> bool:
    """Whether anything lies where a bag is to go; a link on the way there is an OSError."""
    with Directory.root(medium) as root:
        if not root.exists(FOLDER):
            return False
        with root.directory(FOLDER) as folder:
            return folder.exists(name)


def _is_finished(bag: Path, root: Directory) -> bool:
    """Whether a signature is there, other than one that was begun and not written to its end."""
    if not root.exists(SIGNATURE):
        return False
    due = (bag / SIGNATURE).read_bytes()
    found = read_small(root, SIGNATURE, MAX_TAG_BYTES)
    return not (len(found) < len(due) and due.startswith(found))


@contextmanager
def _told(place: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise BadMedium(
            f"{error.filename or place}: {error.strerror}; take another medium"
        ) from error
    except (NoSpace, SyncFailed) as error:
        # A sync that failed is not tried again: a second one may report what is not so.
        raise BadMedium(f"{place}: {error}; take another medium") from error


def _refuse_another(bag: Path, root: Directory) -> None:
    """A bridge that took a new identity gives its carriers the names they had before."""
    if (bag / TAGMANIFEST).read_bytes() != read_small(root, TAGMANIFEST, MAX_TAG_BYTES):
        raise BadMedium(
            f"{root.path} is another carrier of the same bundle, of an earlier identity of this "
            "bridge; take another medium"
        )


def _discard(folder: Directory, name: str, media: Media) -> None:
    if not media.discard_unfinished:
        raise BadMedium(
            f"{folder.path / name} was begun and never finished; take another medium, or run again "
            "with --discard-unfinished if the medium is sound"
        )
    shutil.rmtree(name, dir_fd=folder.fd)
