"""H03: which hub key may have signed the checkpoint of a bundle, the same in both verifiers."""

from __future__ import annotations

from dataclasses import replace
from io import BytesIO
from typing import NamedTuple

import pytest

from bridge import standalone_verifier as standalone
from bridge.errors import CarrierRefused
from bridge.trust import TrustStore
from bridge.verify import verify_bundle
from support.bridge import bridge_world
from support.bridge.bridge_world import HUB, START
from veen.crypto import SigningKey
from veen.digest import h
from veen.hub_identity import HubIdentity

NEW = SigningKey(h(b"new hub key"))
LATE = bridge_world.IDENTITY.rotated(HUB, NEW.public, START + 10, 90)
"""Both keys are valid from START + 10 to START + 100; the events end at START + 4."""
EARLY = bridge_world.IDENTITY.rotated(HUB, NEW.public, START + 1, 1)
"""The old key has retired before the last event."""


class Case(NamedTuple):
    hub: HubIdentity
    created_at: int
    document: SigningKey
    signer: SigningKey
    witnesses: tuple[SigningKey, ...]
    verdict: str


CASES = {
    "before the rotation": Case(LATE, 4, HUB, HUB, (), "valid"),
    "a document of a retired key": Case(LATE, 200, HUB, HUB, (), "E.SIG/CHECKPOINT"),
    "an old checkpoint in a new document": Case(LATE, 200, NEW, HUB, (), "valid"),
    "made after the overlap": Case(LATE, 200, NEW, NEW, (), "valid"),
    "witness_sigs to be absent": Case(LATE, 50, NEW, NEW, (), "E.SIG/CHECKPOINT"),
    "without the old one": Case(LATE, 50, NEW, NEW, (NEW,), "E.SIG/CHECKPOINT"),
    "without the new one": Case(LATE, 50, NEW, NEW, (HUB, HUB), "E.SIG/CHECKPOINT"),
    "with both": Case(LATE, 50, NEW, NEW, (HUB, NEW), "valid"),
    "a key before its time": Case(LATE, 5, HUB, NEW, (HUB, NEW), "E.SIG/CHECKPOINT"),
    "a key retired before the last event": Case(EARLY, 200, NEW, HUB, (), "E.SIG/CHECKPOINT"),
    "events after the document": Case(LATE, 3, HUB, HUB, (), "E.SIG/CHECKPOINT"),
}


@pytest.mark.parametrize("name", CASES)
def test_h03_the_key_of_a_checkpoint_is_bound_to_the_time_of_its_events(name: str) -> None:
    case = CASES[name]
    assert both(bundle(case), case.hub) == case.verdict


def bundle(case: Case) -> bytes:
    world = bridge_world.World().grow(4)
    header, events, proof = bridge_world.parts(world.bundle(1, 4))
    document = header.export_checkpoint
    checkpoint = document.checkpoints[0].signed(case.signer)
    for witness in case.witnesses:
        checkpoint = checkpoint.witnessed(witness)
    document = replace(
        document,
        checkpoints=(checkpoint,),
        created_at=START + case.created_at,
        hub_public=case.document.public,
    ).signed(case.document)
    return bridge_world.reseal(replace(header, export_checkpoint=document), events, proof)


def both(raw: bytes, hub: HubIdentity) -> str:
    try:
        verify_bundle(BytesIO(raw), TrustStore({hub.hub_id: hub}), None)
        result = "valid"
    except CarrierRefused as error:
        result = f"{error.fault.code.value}/{error.fault.detail_enum}"
    try:
        standalone.verify_bundle(
            raw, {hub.hub_id: standalone.read(hub.encode(), standalone.IDENTITY)}
        )
        other = "valid"
    except standalone.VerifierRefused as error:
        other = str(error.args[0])
    assert other == result
    return result
