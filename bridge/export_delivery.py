"""Bringing the bags of a staged carrier to media, each to its own (AGB0 4.9)."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from bridge.carrier.bag import SIGNATURE, TAGMANIFEST
from bridge.carrier.medium import FOLDER, BadMedium, verify_room, verify_written, write_medium
from bridge.carrier.stage import Staged
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

    Whether all media have room for what is to come is settled before the first byte.
    """
    last = len(media.roots) - 1
    places = [(bag, media.roots[min(number, last)]) for number, bag in enumerate(staged.bags)]
    for medium in dict.fromkeys(media.roots):
        due = [bag for bag, of in places if of == medium and not _lies_on(medium, bag).exists()]
        with _told(medium):
            verify_room(due, medium)
    return tuple(_deliver(bag, medium, media, progress) for bag, medium in places)


def medium_id(roots: Sequence[Path]) -> str:
    """A name for media that were not given one, from their file systems."""
    return "+".join(
        dict.fromkeys(f"fs-{os.statvfs(root).f_fsid & (1 << 64) - 1:016x}" for root in roots)
    )


def _deliver(bag: Path, medium: Path, media: Media, progress: Progress) -> Path:
    root = _lies_on(medium, bag)
    with _told(root):
        if (root / SIGNATURE).exists() and not _is_cut(bag / SIGNATURE, root / SIGNATURE):
            # An earlier run ended between its signature and the audit entry.
            _refuse_another(bag, root)
            verify_written(bag, root, progress)
            return root
        if root.exists():
            _discard(root, media)
        return write_medium(bag, medium, progress)


def _lies_on(medium: Path, bag: Path) -> Path:
    return medium / FOLDER / bag.name


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


def _is_cut(whole: Path, written: Path) -> bool:
    """Whether a signature was begun and not written to its end."""
    due, found = whole.read_bytes(), written.read_bytes()
    return len(found) < len(due) and due.startswith(found)


def _refuse_another(bag: Path, root: Path) -> None:
    """A bridge that took a new identity gives its carriers the names they had before."""
    if (bag / TAGMANIFEST).read_bytes() != (root / TAGMANIFEST).read_bytes():
        raise BadMedium(
            f"{root} is another carrier of the same bundle, of an earlier identity of this bridge; "
            "take another medium"
        )


def _discard(root: Path, media: Media) -> None:
    if not media.discard_unfinished:
        raise BadMedium(
            f"{root} was begun and never finished; take another medium, or run again with "
            "--discard-unfinished if the medium is sound"
        )
    shutil.rmtree(root)
