"""Overlays by name, and that a new one needs nothing but its own file."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from veen.digest import h
from veen.overlay.fold import Fold, SeqRun
from veen.overlay.overlay import Event, Overlay
from veen.overlay.snapshot import OVERLAYS, UnknownOverlay, overlay_named
from veen.wire.objects import WireMap
from veen.wire.schema import Version


@dataclass(frozen=True, slots=True, kw_only=True)
class Longest(WireMap):
    ver: Version = 1
    size: int = 0


class LongestBody(Overlay[Longest]):
    """As short as an overlay can be: the size of the longest body of one schema."""

    name = "longest.body"
    schemas = frozenset({h(b"note.v1")})
    kind = Longest

    def read(self, event: Event) -> Longest:
        return Longest(size=len(event.body))

    def join(self, left: Longest, right: Longest) -> Longest:
        return max(left, right, key=lambda state: state.size)

    def part(self, state: Longest, state_id: bytes) -> Longest:
        return state if state_id == bytes(32) else Longest()

    def document(self, state: Longest) -> dict[str, Any]:
        return {"size": state.size}


def test_each_name_is_there_once() -> None:
    names = [overlay.name for overlay in OVERLAYS]
    assert len(set(names)) == len(names)
    assert [overlay_named(name).name for name in names] == names


def test_an_unknown_name_is_refused() -> None:
    with pytest.raises(UnknownOverlay, match=r"wallet\.ledger"):
        overlay_named("wallet")


def test_a_new_overlay_folds_without_any_other_change(
    an_event: Callable[..., Event], new_fold_log: Callable[..., Any], label: bytes
) -> None:
    bodies = [bytes(size) for size in (1, 9, 4, 2, 7)]
    log = new_fold_log([an_event(h(b"note.v1"), body, at) for at, body in enumerate(bodies, 1)])
    fold = Fold(LongestBody(), label, log, 2)
    assert fold.over(SeqRun(1, 5)).state.size == fold.over(SeqRun(1, 5)).state.size == 9
    assert fold.over(SeqRun(3, 5)).state.size == 7
