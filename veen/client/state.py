"""state.json: what a client remembers between runs, replaced whole or not at all (RESYNC0.4)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from veen import durable
from veen.client.view import LabelView
from veen.errors import Malformed, Untrusted, VeenError
from veen.hub_identity import HubIdentity
from veen.invariants import ClientCursor
from veen.mmr import Peaks
from veen.receipt import Receipt

_VERSION = 1


class BadState(VeenError):
    """A state file that cannot be read; nothing is sent from it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownHub:
    """A pinned hub; ``origin`` says how the pin came about."""

    identity: HubIdentity
    origin: str


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """Hubs by address, views by label."""

    hubs: Mapping[str, KnownHub] = field(default_factory=dict)
    views: Mapping[bytes, LabelView] = field(default_factory=dict)

    def named(self, hub_id: bytes) -> tuple[KnownHub, ...]:
        """What is known of a hub, at whichever addresses it answered."""
        return tuple(one for one in self.hubs.values() if one.identity.hub_id == hub_id)

    def with_hub(self, url: str, hub: KnownHub) -> State:
        return replace(self, hubs={**self.hubs, url: hub})

    def with_view(self, label: bytes, view: LabelView) -> State:
        return replace(self, views={**self.views, label: view})


def load(path: Path) -> State:
    """The state in a file; a client that has none yet knows nothing."""
    try:
        text = path.read_bytes()
    except FileNotFoundError:
        return State()
    try:
        return _parse(json.loads(text))
    except (ValueError, KeyError, TypeError, AttributeError, Untrusted) as error:
        raise BadState(f"{path} is damaged ({error}); move it away, then: veen resync") from error


def save(path: Path, state: State) -> None:
    durable.write(path, json.dumps(_plain(state), indent=1, sort_keys=True).encode() + b"\n")


def _plain(state: State) -> dict[str, Any]:
    return {
        "ver": _VERSION,
        "hubs": {
            url: {
                "hub_id": hub.identity.hub_id.hex(),
                "identity": hub.identity.encode().hex(),
                "origin": hub.origin,
            }
            for url, hub in state.hubs.items()
        },
        "labels": {label.hex(): _plain_view(view) for label, view in state.views.items()},
    }


def _plain_view(view: LabelView) -> dict[str, Any]:
    return {
        "hub_id": view.hub_id.hex(),
        "stream": view.stream,
        "epoch": view.epoch,
        "last_stream_seq": view.peaks.size,
        "last_mmr_root": view.peaks.root().hex() if view.peaks.size else None,
        "prev_ack": view.seen,
        "peaks": [one.hex() for one in view.peaks.hashes],
        "receipt": _plain_receipt(view.head),
        "unlinked": _plain_receipt(view.unlinked),
        "clients": {
            client_id.hex(): {"client_seq": cursor.client_seq, "prev_ack": cursor.prev_ack}
            for client_id, cursor in view.cursors.items()
        },
    }


def _plain_receipt(receipt: Receipt | None) -> str | None:
    return receipt.encode().hex() if receipt else None


def _parse(document: Any) -> State:
    if document["ver"] != _VERSION:
        raise Malformed(f"version {document['ver']!r}")
    return State(
        hubs={url: _hub(one) for url, one in document["hubs"].items()},
        views={bytes.fromhex(label): _view(one) for label, one in document["labels"].items()},
    )


def _hub(found: Any) -> KnownHub:
    identity = HubIdentity.decode(bytes.fromhex(found["identity"]))
    return KnownHub(identity=identity, origin=str(found["origin"]))


def _view(found: Any) -> LabelView:
    return LabelView(
        hub_id=bytes.fromhex(found["hub_id"]),
        stream=str(found["stream"]),
        epoch=_count(found["epoch"]),
        peaks=Peaks(
            _count(found["last_stream_seq"]), tuple(bytes.fromhex(one) for one in found["peaks"])
        ),
        head=_receipt(found["receipt"]),
        unlinked=_receipt(found["unlinked"]),
        cursors={
            bytes.fromhex(client_id): ClientCursor(
                _count(cursor["client_seq"]), _count(cursor["prev_ack"])
            )
            for client_id, cursor in found["clients"].items()
        },
    )


def _receipt(found: Any) -> Receipt | None:
    return None if found is None else Receipt.decode(bytes.fromhex(found))


def _count(found: Any) -> int:
    if type(found) is not int or found < 0:
        raise Malformed(f"{found!r} is no count")
    return found
