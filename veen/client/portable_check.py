"""Verifying a portable set: every signature, leaf, root and checkpoint of it (spec 15)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from veen.captoken import CapToken
from veen.checkpoint import Checkpoint
from veen.client import cbor_sequence, portable_set, trust
from veen.client.cursors import Cursors
from veen.client.portable_set import LabelState, Manifest, SyncState
from veen.client.progress import Progress, untold
from veen.client.view import LabelView
from veen.errors import Untrusted
from veen.hub_identity import HubIdentity
from veen.invariants import Before, ClientCursor, Rules, verify_pair
from veen.keystore.card import IdentityCard
from veen.keystore.sealed import SealedSecrets
from veen.limits import Limits
from veen.mmr import Peaks
from veen.msg import Msg
from veen.receipt import Receipt


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifiedSet:
    """What a set holds, once all of it has been shown to hold."""

    root: Path
    manifest: Manifest
    hub: HubIdentity
    hub_url: str
    card: IdentityCard
    views: dict[bytes, LabelView]
    first_seqs: dict[bytes, int]
    pairs: int
    checkpoints: int
    tokens: int

    def own_receipts(self) -> Iterator[Receipt]:
        """The receipts of the client whose set it is."""
        msgs = cbor_sequence.items(self.root / portable_set.PAYLOADS, Msg)
        receipts = cbor_sequence.items(self.root / portable_set.RECEIPTS, Receipt)
        for (_, msg), (_, receipt) in zip(msgs, receipts, strict=True):
            if msg.client_id == self.card.client_id:
                yield receipt


def verify_set(
    root: Path,
    manifest: Manifest,
    held: dict[bytes, LabelView],
    progress: Progress = untold,
    known: Iterable[HubIdentity] = (),
) -> VerifiedSet:
    """All of a set that lies still, or the first thing in it that does not hold.

    ``held`` are views that are known already: the set must pass through them. ``known`` are
    identities known elsewhere: the newest one of this hub is what signatures are verified by.
    """
    hub = HubIdentity.decode(portable_set.small(root / portable_set.IDENTITY))
    hub.verify(portable_set.small(root / portable_set.IDENTITY_SIG))
    for one in known:
        hub = trust.newest(one, hub) if one.hub_id == hub.hub_id else hub
    card = IdentityCard.decode(portable_set.small(root / portable_set.CARD))
    card.verify()
    SealedSecrets.decode(portable_set.small(root / portable_set.KEYSTORE))
    sync = SyncState.decode(portable_set.small(root / portable_set.SYNC_STATE))
    due = sum(one.last_stream_seq - one.first_seq + 1 for one in sync.labels)
    limits = Limits(**sync.limits.to_json())
    walk = _Walk(root, hub, limits, card.client_id, held, lambda done: progress(done, due))
    views = {state.label: walk.label(state) for state in sync.labels}
    walk.finish()
    _verify_attachments(root, manifest)
    return VerifiedSet(
        root=root,
        manifest=manifest,
        hub=hub,
        hub_url=sync.hub_url,
        card=card,
        views=views,
        first_seqs={state.label: state.first_seq for state in sync.labels},
        pairs=walk.pairs,
        checkpoints=walk.checkpoints,
        tokens=_verify_tokens(root),
    )


class _Walk:
    """Goes through the sequences of a set once, label by label."""

    def __init__(
        self,
        root: Path,
        hub: HubIdentity,
        limits: Limits,
        own: bytes,
        held: dict[bytes, LabelView],
        tell: Callable[[int], None],
    ) -> None:
        self._hub = hub
        self._tell = tell
        self._limits = limits
        self._own = own
        self._held = held
        self._receipts = cbor_sequence.items(root / portable_set.RECEIPTS, Receipt)
        self._msgs = cbor_sequence.items(root / portable_set.PAYLOADS, Msg)
        self._ahead = cbor_sequence.items(root / portable_set.CHECKPOINTS, Checkpoint)
        self._due = next(self._ahead, None)
        self.pairs = self.checkpoints = 0

    def label(self, state: LabelState) -> LabelView:
        """The view at the end of a label."""
        labels = state.labels(self._hub.hub_id)
        profiles = {state.profile.profile_id(): state.profile}
        rules = Rules(hub=self._hub, profiles=profiles, limits=self._limits, stream=labels)
        cursors = Cursors(from_start=state.first_seq == 1)
        peaks, own = state.before(), None
        self._compare(state, peaks, 0)
        for _ in range(state.first_seq, state.last_stream_seq + 1):
            msg, receipt = self._next(state)
            before = Before(peaks=peaks, client=cursors.of(msg.client_id), grant=None)
            after = verify_pair(msg, receipt, before, rules)
            cursors.put(msg.client_id, after.client)
            peaks, own = after.peaks, after.client if msg.client_id == self._own else own
            self._compare(state, peaks, receipt.hub_ts)
            self._tell(self.pairs)
        if peaks.root() != state.last_mmr_root:
            raise Untrusted(f"{state.stream}: the set does not end in the root it names")
        return self._view(state, peaks, receipt, own)

    def finish(self) -> None:
        rest = (next(self._receipts, None), next(self._msgs, None), self._due)
        if any(one is not None for one in rest):
            raise Untrusted("the sequences of the set go on after its last label")

    def _next(self, state: LabelState) -> tuple[Msg, Receipt]:
        msg, receipt = next(self._msgs, None), next(self._receipts, None)
        if msg is None or receipt is None:
            raise Untrusted(f"{state.stream}: the set ends before {state.last_stream_seq}")
        self.pairs += 1
        if receipt[1].label != state.label:
            raise Untrusted(f"{state.stream}: a receipt of another label stands among its own")
        held = self._held.get(state.label)
        ours = held.unlinked if held is not None else None
        if ours is not None and ours.contradicts(receipt[1]):
            raise _other_history(state, receipt[1].stream_seq)
        return msg[1], receipt[1]

    def _compare(self, state: LabelState, peaks: Peaks, hub_ts: int) -> None:
        """``hub_ts`` is that of the receipt at this size; 0 where it lies before the set."""
        held = self._held.get(state.label)
        if held is not None and held.peaks.size == peaks.size and held.peaks != peaks:
            raise _other_history(state, peaks.size)
        if self._due is None or self._due[1].label_curr != state.label:
            return
        checkpoint = self._due[1]
        if checkpoint.upto_seq == peaks.size:
            checkpoint.verify_labels(state.labels(self._hub.hub_id))
            self._hub.verify_checkpoint(checkpoint, state.profile, not_before=hub_ts)
            checkpoint.verify_root(peaks.size, peaks.root())
            self._due, self.checkpoints = next(self._ahead, None), self.checkpoints + 1

    def _view(
        self, state: LabelState, peaks: Peaks, last: Receipt, own: ClientCursor | None
    ) -> LabelView:
        return LabelView(
            hub_id=self._hub.hub_id,
            stream=state.stream,
            epoch=state.epoch,
            peaks=peaks,
            head=last,
            cursors={} if own is None else {self._own: own},
        )


def _other_history(state: LabelState, seq: int) -> Untrusted:
    return Untrusted(
        f"{state.stream}: the set tells another history than the one known here, "
        f"at stream_seq {seq} or before"
    )


def _verify_tokens(root: Path) -> int:
    count = 0
    for _, token in cbor_sequence.items(root / portable_set.CAP_TOKENS, CapToken):
        token.verify_chain()
        count += 1
    return count


def _verify_attachments(root: Path, manifest: Manifest) -> None:
    for one in manifest.files:
        if "/" in one.name:
            portable_set.attachment(root / one.name)
