"""state.json: replaced whole or not at all, and never guessed at when it is damaged."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from veen.client.session import ClientState, KnownHub, LabelView, load_state, save_state
from veen.crypto import SigningKey
from veen.digest import h
from veen.errors import BadState, Untrusted
from veen.hub_identity import new_identity
from veen.invariants import ClientCursor
from veen.mmr import EMPTY
from veen.receipt import Receipt
from veen.system import durable

HUB = KnownHub(identity=new_identity(SigningKey(h(b"hub")).public, 5, "none"), origin="given")


def a_view(size: int, *, noted: bool = False) -> LabelView:
    view = LabelView(hub_id=HUB.identity.hub_id, stream="record/ä", epoch=3)
    peaks = EMPTY
    for number in range(size):
        peaks = peaks.append(h(b"%d" % number))
        receipt = Receipt(
            label=h(b"label"), stream_seq=number + 1, leaf_hash=h(b"%d" % number),
            mmr_root=peaks.root(), hub_ts=9,
        )  # fmt: skip
        view = view.appended(receipt)
    if noted:
        beyond = Receipt(
            label=h(b"label"), stream_seq=size + 9, leaf_hash=h(b"x"), mmr_root=h(b"y"), hub_ts=9
        )
        view = view.noted(beyond)
    return view.with_cursor(h(b"client"), ClientCursor(size, max(0, size - 1)))


STATE = ClientState(
    hubs={"http://127.0.0.1:8080": HUB}, views={h(b"label"): a_view(11), h(b"b"): a_view(0)}
)


@given(st.integers(0, 40), st.booleans())
def test_a_state_comes_back_as_it_went(
    tmp_path_factory: pytest.TempPathFactory, size: int, noted: bool
) -> None:
    path = tmp_path_factory.mktemp("state") / "state.json"
    state = STATE.with_view(h(b"other"), a_view(size, noted=noted))
    save_state(path, state)
    assert load_state(path) == state


def test_the_same_state_has_the_same_bytes_and_is_private(tmp_path: Path) -> None:
    path = tmp_path / "state.json"
    save_state(path, STATE)
    first = path.read_bytes()
    save_state(path, load_state(path))
    assert path.read_bytes() == first
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    view = json.loads(first)["labels"][h(b"label").hex()]
    assert (view["last_stream_seq"], view["prev_ack"], view["stream"]) == (11, 11, "record/ä")


def test_a_client_without_a_state_knows_nothing(tmp_path: Path) -> None:
    assert load_state(tmp_path / "state.json") == ClientState()


def test_a_write_that_fails_leaves_what_was_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "state.json"
    save_state(path, STATE)

    def full(*_: Any) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "pwrite", full)
    with pytest.raises(durable.NoSpace):
        save_state(path, ClientState())
    monkeypatch.undo()
    assert load_state(path) == STATE
    assert [path.name for path in tmp_path.iterdir()] == ["state.json"]


LABEL = h(b"label").hex()
DAMAGE: dict[str, Callable[[dict[str, Any]], object]] = {
    "no version": lambda item: item.pop("ver"),
    "no labels": lambda item: item.pop("labels"),
    "labels that are none": lambda item: item.update(labels=[]),
    "a label that is no hex": lambda item: item["labels"].update(zz=item["labels"][LABEL]),
    "a size that is no count": lambda item: item["labels"][LABEL].update(last_stream_seq="11"),
    "a size that is true": lambda item: item["labels"][LABEL].update(last_stream_seq=True),
    "a negative size": lambda item: item["labels"][LABEL].update(last_stream_seq=-1),
    "too few peaks": lambda item: item["labels"][LABEL]["peaks"].pop(),
    "a receipt cut short": lambda item: item["labels"][LABEL].update(receipt="87"),
    "a cursor without a number": lambda item: item["labels"][LABEL].update(clients={"aa": {}}),
    "a hub that is none": lambda item: item["hubs"].update(x={"identity": "", "origin": "given"}),
}


def test_a_file_of_a_later_version_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "state.json"
    save_state(path, STATE)
    later = json.dumps({**json.loads(path.read_bytes()), "ver": 3})
    path.write_text(later)
    with pytest.raises(BadState, match=r"state\.json: expected version 2, got 3.*later release"):
        load_state(path)
    assert path.read_text() == later


@pytest.mark.parametrize("name", DAMAGE)
def test_a_damaged_file_is_named_and_nothing_is_read_from_it(name: str, tmp_path: Path) -> None:
    path = tmp_path / "state.json"
    save_state(path, STATE)
    document = json.loads(path.read_bytes())
    DAMAGE[name](document)
    path.write_text(json.dumps(document))
    with pytest.raises(BadState, match=r"state\.json is damaged.*resync"):
        load_state(path)


@given(st.integers(0, 10**6))
def test_a_file_cut_short_is_named(tmp_path_factory: pytest.TempPathFactory, cut: int) -> None:
    path = tmp_path_factory.mktemp("state") / "state.json"
    save_state(path, STATE)
    whole = path.read_bytes()
    path.write_bytes(whole[: cut % (len(whole) - 1)])
    with pytest.raises(BadState):
        load_state(path)


def test_a_view_whose_peaks_were_changed_is_found_by_its_receipt(tmp_path: Path) -> None:
    path = tmp_path / "state.json"
    save_state(path, STATE)
    document = json.loads(path.read_bytes())
    document["labels"][LABEL]["peaks"][0] = "00" * 32
    path.write_text(json.dumps(document))
    with pytest.raises(Untrusted):
        load_state(path).views[bytes.fromhex(LABEL)].verify()
