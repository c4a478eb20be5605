"""What the demonstration claims: each judged by what was read, none taken for granted."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """``told`` is what it was judged by; ``link`` leads to the thing itself."""

    says: str
    holds: bool
    told: str
    link: str

    def document(self) -> dict[str, Any]:
        return {"says": self.says, "holds": self.holds, "told": self.told, "link": self.link}


class Claims:
    """In the order in which they were judged."""

    def __init__(self) -> None:
        self.judged: list[Claim] = []

    def judge(self, says: str, holds: bool, *, told: str, link: str) -> Claim:
        found = Claim(says=says, holds=holds, told=told, link=link)
        self.judged.append(found)
        return found

    @property
    def broken(self) -> list[Claim]:
        return [one for one in self.judged if not one.holds]


def table(claims: list[Claim]) -> Iterator[str]:
    width = max(len(one.says) for one in claims)
    yield f"{'invariant':<{width}}  held  judged by"
    for one in claims:
        yield f"{one.says:<{width}}  {'yes ' if one.holds else 'NO  '}  {one.told}"
    yield ""
    yield "where it is"
    for one in claims:
        yield f"  {one.says:<{width}}  {one.link}"
