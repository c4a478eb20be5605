"""An opened store: its objects, its heads, and what is known about how far it can be trusted."""

from __future__ import annotations

from dataclasses import dataclass

from veen.objects.port import HeadStore, ObjectStore


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreStatus:
    """What a probe found, for status and metrics; None is what nobody has looked at."""

    kind: str
    url: str
    keeps_if_none_match: bool | None = None
    keeps_if_match: bool | None = None

    @property
    def keeps_conditions(self) -> bool | None:
        found = {self.keeps_if_none_match, self.keeps_if_match}
        return False if False in found else None if None in found else True

    @property
    def warnings(self) -> tuple[str, ...]:
        found = []
        if self.keeps_if_none_match is False:
            found.append(
                f"{self.url} ignores If-None-Match: two writers at once can overwrite an object"
            )
        if self.keeps_if_match is False:
            found.append(f"{self.url} ignores If-Match: of two swaps of a head one can be lost")
        return tuple(found)


@dataclass(frozen=True, slots=True)
class Store:
    objects: ObjectStore
    heads: HeadStore
    status: StoreStatus
