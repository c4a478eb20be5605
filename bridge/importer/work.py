"""One carrier on its way through the airlock: where it lies now, and where it came from."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """``place`` holds its bags, which are ours alone; ``inbox`` are the names it came under.

    ``sha256`` is the hash of what was received. A carrier that has waited came by no name.
    ``doubled`` are those of the names under which only bags lie that are there twice.
    """

    name: str
    place: Path
    bags: tuple[Path, ...]
    inbox: tuple[str, ...] = ()
    doubled: tuple[str, ...] = ()
    sha256: bytes

    @classmethod
    def held(cls, bundle_id: bytes, place: Path, sha256: bytes) -> Work:
        """A bundle that has been here before."""
        return cls(name=bundle_id.hex(), place=place, bags=bags_in(place), sha256=sha256)

    @property
    def is_new(self) -> bool:
        return bool(self.inbox)


def bags_in(place: Path) -> tuple[Path, ...]:
    return tuple(sorted(path for path in place.iterdir() if path.is_dir()))
