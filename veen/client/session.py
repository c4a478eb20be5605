"""The session of a client with a hub: pinned identity, verified views of labels, and their file.

``LabelView`` is what the client has verified of a label. ``state.json`` is replaced atomically at
each change; it holds the newest epochs of each stream, and names the file of the views of earlier
ones, which hardly change.
"""

from __future__ import annotations

import json
import logging
from collections.abc import ItemsView, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from threading import RLock
from typing import TYPE_CHECKING, Any, Final

from veen.checkpoint import Checkpoint
from veen.client.hub_api import HubApi
from veen.client.transport import HubAddress
from veen.errors import LATER_RELEASE, BadState, Malformed, Untrusted, WrongVersion
from veen.hub_identity import HubIdentity, followed_identity, pinned_identity
from veen.invariants import NEW_CLIENT, ClientCursor, Rules
from veen.keystore.card import Identity
from veen.label import EpochLabels, Profile, routing_key, stream_id
from veen.limits import Limits
from veen.mmr import EMPTY, Peaks
from veen.proofs import RangeProof
from veen.receipt import Receipt
from veen.system import durable
from veen.system.environment import Runtime

if TYPE_CHECKING:
    from veen.client.closed_views import ClosedViews

_VERSION = 2
_WITHOUT_CLOSED = 1
"""The version of a state without closed epochs, which earlier releases read, too."""
_OPEN_EPOCHS: Final = 4
"""How many epochs of a stream are in ``state.json``."""
_CLOSED_FILE: Final = "closed-views.sqlite"
MAX_SKEW_SEC: Final = 60
_log = logging.getLogger(__name__)
GIVEN, DIRECTORY, FIRST_CONTACT = "given", "data directory", "first contact"
"""The origin of a pin."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelView:
    """What the client has verified of a label.

    ``head`` is the receipt at peaks.size. ``unlinked`` is our newest receipt beyond it that is not
    proved to extend it, because the client may not read.
    """

    hub_id: bytes
    stream: str
    epoch: int
    peaks: Peaks = EMPTY
    head: Receipt | None = None
    unlinked: Receipt | None = None
    cursors: Mapping[bytes, ClientCursor] = field(default_factory=dict)

    @property
    def seen(self) -> int:
        """The largest stream_seq that the hub has signed to us: what prev_ack may name."""
        return max(self.peaks.size, self.unlinked.stream_seq if self.unlinked else 0)

    def cursor(self, client_id: bytes) -> ClientCursor:
        return self.cursors.get(client_id, NEW_CLIENT)

    def verify(self) -> None:
        """Raise Untrusted unless the receipt of the view confirms it."""
        if self.peaks.size == 0 and self.head is None:
            return
        if self.head is None or self.head.stream_seq != self.peaks.size:
            raise Untrusted("the view has no receipt for its size")
        if self.head.mmr_root != self.peaks.root():
            raise Untrusted(f"the peaks are not those of the root signed at {self.peaks.size}")

    def appended(self, receipt: Receipt) -> LabelView:
        """The view after the next entry, or Untrusted if I3 or I12 is broken."""
        if receipt.stream_seq != self.peaks.size + 1:
            raise Untrusted(
                f"expected the receipt after {self.peaks.size}, got {receipt.stream_seq}"
            )
        return self._moved(self.peaks.append(receipt.leaf_hash), receipt)

    def linked(self, proof: RangeProof, receipt: Receipt) -> LabelView:
        """The view after a later entry, by a proof from our peaks to the size before it."""
        before = receipt.stream_seq - 1
        if (proof.from_seq, proof.to_seq, proof.size) != (
            self.peaks.size + 1, self.peaks.size, before,
        ):  # fmt: skip
            raise Untrusted(
                f"expected a consistency proof from {self.peaks.size} to {before}, got another "
                "range"
            )
        if proof.before() != self.peaks:
            raise Untrusted(
                f"the peaks of the hub at {self.peaks.size} differ from those known here"
            )
        return self._moved(proof.after(self.peaks).append(receipt.leaf_hash), receipt)

    def noted(self, receipt: Receipt) -> LabelView:
        """The view with a receipt that could not be linked to it."""
        return replace(self, unlinked=receipt)

    def with_cursor(self, client_id: bytes, cursor: ClientCursor) -> LabelView:
        return replace(self, cursors={**self.cursors, client_id: cursor})

    def _moved(self, peaks: Peaks, receipt: Receipt) -> LabelView:
        if peaks.root() != receipt.mmr_root:
            raise Untrusted(
                f"the root signed at {receipt.stream_seq} differs from the history known here"
            )
        passed = self.unlinked is None or self.unlinked.stream_seq <= peaks.size
        return replace(self, peaks=peaks, head=receipt, unlinked=None if passed else self.unlinked)


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownHub:
    """A pinned hub; ``origin`` says how the pin came about."""

    identity: HubIdentity
    origin: str


@dataclass(frozen=True, slots=True, eq=False)
class LabelViews(Mapping[bytes, LabelView]):
    """Views by label: those in memory, and those of closed epochs on disk, read when needed."""

    opened: Mapping[bytes, LabelView]
    closed: ClosedViews | None = None

    def __getitem__(self, label: bytes) -> LabelView:
        if label in self.opened or self.closed is None:
            return self.opened[label]
        text = self.closed.get(label)
        if text is None:
            raise KeyError(label)
        return _closed_view(text)

    def __iter__(self) -> Iterator[bytes]:
        yield from self.opened
        if self.closed is not None:
            yield from (label for label in self.closed.labels() if label not in self.opened)

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def items(self) -> ItemsView[bytes, LabelView]:
        """All views, read at once."""
        closed = () if self.closed is None else self.closed.items()
        return ({label: _closed_view(text) for label, text in closed} | dict(self.opened)).items()

    def with_view(self, label: bytes, view: LabelView) -> LabelViews:
        return LabelViews({**self.opened, label: view}, self.closed)

    def closing(self) -> dict[bytes, LabelView]:
        """The views in memory that are not of the newest epochs of their stream."""
        epochs: dict[tuple[bytes, str], list[int]] = {}
        for view in self.opened.values():
            epochs.setdefault((view.hub_id, view.stream), []).append(view.epoch)
        first = {key: sorted(known)[-_OPEN_EPOCHS:][0] for key, known in epochs.items()}
        return {
            label: view
            for label, view in self.opened.items()
            if view.epoch < first[view.hub_id, view.stream]
        }


def _layered(views: Mapping[bytes, LabelView]) -> LabelViews:
    return views if isinstance(views, LabelViews) else LabelViews(views)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientState:
    """Hubs by address, views by label."""

    hubs: Mapping[str, KnownHub] = field(default_factory=dict)
    views: Mapping[bytes, LabelView] = field(default_factory=dict)

    def named(self, hub_id: bytes) -> tuple[KnownHub, ...]:
        """The pins of a hub, at all its addresses."""
        return tuple(hub for hub in self.hubs.values() if hub.identity.hub_id == hub_id)

    def with_hub(self, url: str, hub: KnownHub) -> ClientState:
        return replace(self, hubs={**self.hubs, url: hub})

    def with_view(self, label: bytes, view: LabelView) -> ClientState:
        return replace(self, views=_layered(self.views).with_view(label, view))


def load_state(path: Path) -> ClientState:
    """The state in a file; empty if there is no file."""
    try:
        text = path.read_bytes()
    except FileNotFoundError:
        return ClientState()
    try:
        return _parse(json.loads(text), path.with_name(_CLOSED_FILE))
    except WrongVersion as error:
        raise BadState(f"{path}: {error}") from error
    except (ValueError, KeyError, TypeError, AttributeError, Untrusted) as error:
        raise BadState(f"{path} is damaged ({error}); move it away, then: veen resync") from error


def save_state(path: Path, state: ClientState) -> ClientState:
    """Replace the state on disk; the same state, with closed epochs left to their file.

    They are durable there first. After a crash between the two steps a view is in both files, and
    that in ``state.json`` counts.
    """
    views = _layered(state.views)
    closing, closed = views.closing(), views.closed
    if closing:
        closed = closed or _closed_views().create(path.with_name(_CLOSED_FILE))
        closed.put({label: json.dumps(_plain_view(view)) for label, view in closing.items()})
    opened = {label: view for label, view in views.opened.items() if label not in closing}
    _write_state(path, state, opened, closed)
    return replace(state, views=LabelViews(opened, closed))


def _write_state(
    path: Path, state: ClientState, opened: Mapping[bytes, LabelView], closed: ClosedViews | None
) -> None:
    document: dict[str, Any] = {
        "ver": _WITHOUT_CLOSED if closed is None else _VERSION,
        "hubs": {
            url: {
                "hub_id": hub.identity.hub_id.hex(),
                "identity": hub.identity.encode().hex(),
                "origin": hub.origin,
            }
            for url, hub in state.hubs.items()
        },
        "labels": {label.hex(): _plain_view(view) for label, view in opened.items()},
    }
    if closed is not None:
        document["closed"] = closed.token
    durable.write(path, json.dumps(document, indent=1, sort_keys=True).encode() + b"\n")


def _plain_view(view: LabelView) -> dict[str, Any]:
    return {
        "hub_id": view.hub_id.hex(),
        "stream": view.stream,
        "epoch": view.epoch,
        "last_stream_seq": view.peaks.size,
        "last_mmr_root": view.peaks.root().hex() if view.peaks.size else None,
        "prev_ack": view.seen,
        "peaks": [hash_.hex() for hash_ in view.peaks.hashes],
        "receipt": view.head.encode().hex() if view.head else None,
        "unlinked": view.unlinked.encode().hex() if view.unlinked else None,
        "clients": {
            client_id.hex(): {"client_seq": cursor.client_seq, "prev_ack": cursor.prev_ack}
            for client_id, cursor in view.cursors.items()
        },
    }


def _parse(document: Any, closed_path: Path) -> ClientState:
    if document["ver"] not in (_WITHOUT_CLOSED, _VERSION):
        raise WrongVersion(f"expected version {_VERSION}, got {document['ver']!r}: {LATER_RELEASE}")
    closed = None
    if document["ver"] == _VERSION:
        closed = _closed_views()(closed_path, str(document["closed"]))
    opened = {bytes.fromhex(label): _view(view) for label, view in document["labels"].items()}
    return ClientState(
        hubs={url: _hub(hub) for url, hub in document["hubs"].items()},
        views=LabelViews(opened, closed),
    )


def _closed_views() -> type[ClosedViews]:
    """The class, imported when a client has closed epochs: SQLite takes a while to load."""
    from veen.client.closed_views import ClosedViews  # noqa: PLC0415

    return ClosedViews


def _closed_view(text: str) -> LabelView:
    try:
        return _view(json.loads(text))
    except (ValueError, KeyError, TypeError, AttributeError, Untrusted) as error:
        raise BadState(
            f"{_CLOSED_FILE} is damaged ({error}); move state.json away, then: veen resync"
        ) from error


def _hub(value: Any) -> KnownHub:
    identity = HubIdentity.decode(bytes.fromhex(value["identity"]))
    return KnownHub(identity=identity, origin=str(value["origin"]))


def _view(value: Any) -> LabelView:
    return LabelView(
        hub_id=bytes.fromhex(value["hub_id"]),
        stream=str(value["stream"]),
        epoch=_count(value["epoch"]),
        peaks=Peaks(
            _count(value["last_stream_seq"]), tuple(bytes.fromhex(peak) for peak in value["peaks"])
        ),
        head=_receipt(value["receipt"]),
        unlinked=_receipt(value["unlinked"]),
        cursors={
            bytes.fromhex(client_id): ClientCursor(
                _count(cursor["client_seq"]), _count(cursor["prev_ack"])
            )
            for client_id, cursor in value["clients"].items()
        },
    )


def _receipt(value: Any) -> Receipt | None:
    return None if value is None else Receipt.decode(bytes.fromhex(value))


def _count(value: Any) -> int:
    if type(value) is not int or value < 0:
        raise Malformed(f"expected a whole number from 0, got {value!r}")
    return value


def skew_warning(hub_time_ahead: int) -> str | None:
    """The warning that the hub's clock differs from ours, or None within a tolerance."""
    if abs(hub_time_ahead) <= MAX_SKEW_SEC:
        return None
    way = "ahead of" if hub_time_ahead > 0 else "behind"
    return (
        f"hub time is {abs(hub_time_ahead)} s {way} this host's clock: compare both clocks with a "
        'third one and set the wrong one right; see "The clock is wrong" in docs/runbook.md'
    )


class Session:
    """A client's session with its hub; ``keep`` replaces the state on disk."""

    def __init__(
        self,
        root: Path,
        identity: Identity,
        api: HubApi,
        runtime: Runtime,
    ) -> None:
        self.root = root
        self.identity = identity
        self.api = api
        self.runtime = runtime
        self.client_id = identity.client_id
        self._path = root / "state.json"
        self._state = load_state(self._path)
        self.moving = RLock()
        self.limits = Limits()
        self.hub_time_ahead = 0

    @property
    def state(self) -> ClientState:
        return self._state

    @property
    def hub(self) -> HubIdentity:
        """The pinned identity; ``meet`` has made sure there is one."""
        known = self._state.hubs.get(self.api.transport.url)
        if known is None:
            raise Untrusted(f"no hub is pinned for {self.api.transport.url} yet")
        return known.identity

    def meet(self, address: HubAddress, hub_id: bytes | None) -> HubIdentity:
        """Ask the hub for its identity, and verify it against every pin."""
        status = self.api.status()
        offered = status.identity()
        if hub_id is not None:
            pinned_identity(offered, hub_id)
        if address.identity is not None:
            followed_identity(address.identity, offered)
        known = self._state.hubs.get(address.url)
        for pinned in (known, *self._state.named(offered.hub_id)):
            if pinned is not None:
                followed_identity(pinned.identity, offered)
        self.limits = Limits(**status.limits.to_json())
        self._set_time(status.hub_ts)
        self._pin(address, known, offered, GIVEN if hub_id is not None else None)
        return offered

    def verify_receipt(self, receipt: Receipt) -> None:
        """Raise Untrusted unless the hub signed a receipt; a rotated key is fetched."""
        try:
            self.hub.verify_receipt(receipt)
        except Untrusted:
            self.ask_identity().verify_receipt(receipt)

    def verify_checkpoint(self, checkpoint: Checkpoint, profile: Profile, hub_ts: int) -> None:
        """Raise Untrusted unless a key of its time signed a checkpoint, with witnesses (KEX0.1).

        ``hub_ts`` is that of the receipt at upto_seq.
        """
        try:
            self.hub.verify_checkpoint(
                checkpoint, profile, not_before=hub_ts, not_after=self.hub_now()
            )
        except Untrusted:
            self.ask_identity().verify_checkpoint(
                checkpoint, profile, not_before=hub_ts, not_after=self.hub_now()
            )

    def ask_identity(self) -> HubIdentity:
        """Fetch the hub's identity and time; a newer identity that extends ours is pinned."""
        known = self._state.hubs[self.api.transport.url]
        status = self.api.status()
        offered = followed_identity(known.identity, status.identity())
        self._set_time(status.hub_ts)
        self._pin(HubAddress(self.api.transport.url, None), known, offered, None)
        return offered

    def labels(self, name: str, profile: Profile) -> EpochLabels:
        return EpochLabels(routing_key(self.hub.hub_id), stream_id(name), profile)

    def rules(self, labels: EpochLabels) -> Rules:
        profiles = {labels.profile.profile_id(): labels.profile}
        return Rules(hub=self.hub, profiles=profiles, limits=self.limits, stream=labels)

    def hub_now(self) -> int:
        """The estimated time of the hub, which determines the epoch."""
        return self.runtime.clock() + self.hub_time_ahead

    def ask_time(self) -> None:
        self._set_time(self.api.status().hub_ts)

    def view(self, label: bytes, name: str, epoch: int) -> LabelView:
        known = self._state.views.get(label)
        return known or LabelView(hub_id=self.hub.hub_id, stream=name, epoch=epoch)

    def keep(self, label: bytes, view: LabelView) -> None:
        """Store a view durably.

        A caller that derives it from the current view holds ``moving``, so that no update is lost.
        """
        with self.moving:
            self._save(self._state.with_view(label, view))

    def _set_time(self, hub_ts: int) -> None:
        before, self.hub_time_ahead = self.hub_time_ahead, hub_ts - self.runtime.clock()
        if (warning := skew_warning(self.hub_time_ahead)) and not skew_warning(before):
            _log.warning("%s: %s", self.api.transport.url, warning)

    def _pin(
        self, address: HubAddress, known: KnownHub | None, offered: HubIdentity, origin: str | None
    ) -> None:
        if known is not None and known.identity == offered:
            return
        default_origin = origin or (DIRECTORY if address.identity is not None else FIRST_CONTACT)
        hub = KnownHub(identity=offered, origin=known.origin if known else default_origin)
        with self.moving:
            self._save(self._state.with_hub(address.url, hub))

    def _save(self, new: ClientState) -> None:
        self._state = save_state(self._path, new)
