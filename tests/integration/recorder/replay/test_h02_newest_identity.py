"""H02: an output is checked by the newest identity of the hub that is known, not by its own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from recorder.replay.output import form_named
from recorder.replay.plan import by_place
from recorder.replay.verify import check_file
from support.recorder import replay_notary
from veen.crypto import SigningKey
from veen.digest import h
from veen.errors import Untrusted
from veen.hub_identity import HubIdentity

NEXT = SigningKey(h(b"the next key"))


@pytest.fixture
def out(replay_world: Any) -> Path:
    path: Path = replay_world.folder / "out.jsonl"
    expected = by_place("record/a", 3, 7, with_proofs=True)
    replay_world.job(expected).to_file(path, form_named("jsonl"), resume=False)
    return path


def rotated(hub: Any, at: int) -> HubIdentity:
    result: HubIdentity = hub.identity.rotated(hub.key, NEXT.public, at, 0)
    return result


def test_h02_an_output_of_a_retired_key_is_refused(replay_world: Any, out: Path) -> None:
    hub = replay_world.hub
    assert check_file(out, hub.identity.hub_id).hub.number == 1
    retired = rotated(hub, replay_notary.NOON - 1)
    with pytest.raises(Untrusted, match="not a key of the hub at that time"):
        check_file(out, hub.identity.hub_id, known=retired)


def test_h02_a_key_that_retired_later_still_verifies(replay_world: Any, out: Path) -> None:
    later = rotated(replay_world.hub, replay_notary.NOON + 10**6)
    verified = check_file(out, replay_world.hub.identity.hub_id, known=later)
    assert (verified.hub, verified.proven) == (later, 5)
