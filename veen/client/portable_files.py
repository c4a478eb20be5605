"""Export and verification of a portable set (spec 15).

``export`` writes the labels of some streams, verified while they are read from the hub.
``verify_set`` verifies every signature, leaf, root and checkpoint of a set.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from veen.captoken import CapToken
from veen.checkpoint import Checkpoint
from veen.client import portable_set
from veen.client.checkpoints import checkpoints, verify_checkpoint
from veen.client.log_head import (
    LabelLogRef,
    Pair,
    first_readable,
    is_missing,
    is_readable,
    read_log_head,
    receipt_at,
)
from veen.client.portable_set import LabelState, PortableManifest, SyncState
from veen.client.reader import epoch_logs
from veen.client.receipts import cbor_items
from veen.client.session import LabelView, Session
from veen.client.transport import HubRefused
from veen.client.verified_read import ClientCursors, LabelRange, own_client_ids, replay
from veen.errors import Untrusted, VeenError
from veen.hub_identity import HubIdentity, followed_identity, newest_identity
from veen.invariants import Before, ClientCursor, Rules, verify_pair
from veen.keystore.card import IdentityCard
from veen.keystore.sealed import SealedSecrets
from veen.label import EpochLabels
from veen.limits import Limits
from veen.mmr import Peaks
from veen.msg import Msg
from veen.receipt import Receipt
from veen.system import durable
from veen.system.environment import Progress, no_progress

MAX_TOKENS = 4_096


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifiedSet:
    """A set of which everything is verified."""

    root: Path
    manifest: PortableManifest
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
        msgs = cbor_items(self.root / portable_set.PAYLOADS, Msg)
        receipts = cbor_items(self.root / portable_set.RECEIPTS, Receipt)
        for (_, msg), (_, receipt) in zip(msgs, receipts, strict=True):
            if msg.client_id == self.card.client_id:
                yield receipt


def verify_set(
    root: Path,
    manifest: PortableManifest,
    held: dict[bytes, LabelView],
    progress: Progress = no_progress,
    known: Iterable[HubIdentity] = (),
) -> VerifiedSet:
    """Verify a set that does not change meanwhile; raise the first violation.

    ``held`` are views that are known already: the set must agree with them. ``known`` are
    identities known elsewhere: signatures are verified with the newest identity of the hub.
    """
    hub = HubIdentity.decode(portable_set.small(root / portable_set.IDENTITY))
    hub.verify(portable_set.small(root / portable_set.IDENTITY_SIG))
    for identity in known:
        hub = newest_identity(identity, hub) if identity.hub_id == hub.hub_id else hub
    card = IdentityCard.decode(portable_set.small(root / portable_set.CARD))
    card.verify()
    SealedSecrets.decode(portable_set.small(root / portable_set.KEYSTORE))
    sync = SyncState.decode(portable_set.small(root / portable_set.SYNC_STATE))
    total = sum(label.last_stream_seq - label.first_seq + 1 for label in sync.labels)
    limits = Limits(**sync.limits.to_json())
    walk = _Walk(root, hub, limits, card.client_id, held, lambda done: progress(done, total))
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
    """Verifies the sequences of a set in one pass, label by label."""

    def __init__(
        self,
        root: Path,
        hub: HubIdentity,
        limits: Limits,
        own: bytes,
        held: dict[bytes, LabelView],
        progress: Callable[[int], None],
    ) -> None:
        self._hub = hub
        self._progress = progress
        self._limits = limits
        self._own = own
        self._held = held
        self._receipts = cbor_items(root / portable_set.RECEIPTS, Receipt)
        self._msgs = cbor_items(root / portable_set.PAYLOADS, Msg)
        self._ahead = cbor_items(root / portable_set.CHECKPOINTS, Checkpoint)
        self._due = next(self._ahead, None)
        self.pairs = self.checkpoints = 0

    def label(self, state: LabelState) -> LabelView:
        """The view at the end of a label."""
        labels = state.labels(self._hub.hub_id)
        profiles = {state.profile.profile_id(): state.profile}
        rules = Rules(hub=self._hub, profiles=profiles, limits=self._limits, stream=labels)
        cursors = ClientCursors(from_start=state.first_seq == 1)
        peaks, own = state.before(), None
        self._compare(state, peaks, 0)
        for _ in range(state.first_seq, state.last_stream_seq + 1):
            msg, receipt = self._next(state)
            before = Before(peaks=peaks, client=cursors.of(msg.client_id), grant=None)
            after = verify_pair(msg, receipt, before, rules)
            cursors.put(msg.client_id, after.client)
            peaks, own = after.peaks, after.client if msg.client_id == self._own else own
            self._compare(state, peaks, receipt.hub_ts)
            self._progress(self.pairs)
        if peaks.root() != state.last_mmr_root:
            raise Untrusted(f"{state.stream}: the entries of the set do not give its root")
        return self._view(state, peaks, receipt, own)

    def finish(self) -> None:
        rest = (next(self._receipts, None), next(self._msgs, None), self._due)
        if any(left is not None for left in rest):
            raise Untrusted("the sequences of the set continue after its last label")

    def _next(self, state: LabelState) -> tuple[Msg, Receipt]:
        msg, receipt = next(self._msgs, None), next(self._receipts, None)
        if msg is None or receipt is None:
            raise Untrusted(f"{state.stream}: the set ends before {state.last_stream_seq}")
        self.pairs += 1
        if receipt[1].label != state.label:
            raise Untrusted(f"{state.stream}: a receipt belongs to another label")
        held = self._held.get(state.label)
        ours = held.unlinked if held is not None else None
        if ours is not None and ours.contradicts(receipt[1]):
            raise _other_history(state, receipt[1].stream_seq)
        return msg[1], receipt[1]

    def _compare(self, state: LabelState, peaks: Peaks, hub_ts: int) -> None:
        """Compare with known views and the next checkpoint.

        ``hub_ts`` is that of the receipt at this size; 0 if it is before the set.
        """
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
        f"{state.stream}: the set has another history than the one known here, "
        f"at stream_seq {seq} or before"
    )


def _verify_tokens(root: Path) -> int:
    count = 0
    for _, token in cbor_items(root / portable_set.CAP_TOKENS, CapToken):
        token.verify_chain()
        count += 1
    return count


def _verify_attachments(root: Path, manifest: PortableManifest) -> None:
    for file in manifest.files:
        if "/" in file.name:
            portable_set.attachment(root / file.name)


@dataclass(frozen=True, slots=True, kw_only=True)
class PortableExport:
    labels: int
    pairs: int
    checkpoints: int
    tokens: int
    attachments: int


def export(
    session: Session,
    streams: Sequence[tuple[str, EpochLabels]],
    out: Path,
    progress: Progress = no_progress,
) -> PortableExport:
    """Write a set of some streams to ``out``, atomically."""
    if os.path.lexists(out):
        raise VeenError(f"{out} exists: a portable set is never overwritten; choose another name")
    work = out.with_name(f".{out.name}.new")
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(mode=durable.DIR_MODE)
    try:
        with ExitStack() as files:
            done = _Export(session, work, files, progress).streams(streams)
        _seal(work)
        work.rename(out)
    except BaseException:
        shutil.rmtree(work, ignore_errors=True)
        raise
    durable.sync_directory(out.parent)
    return done


class _Export:
    def __init__(self, session: Session, work: Path, files: ExitStack, progress: Progress) -> None:
        self._session = session
        self._progress = progress
        self._work = work
        self._receipts, self._payloads, self._checkpoints = (
            files.enter_context(_sequence(work / name))
            for name in (portable_set.RECEIPTS, portable_set.PAYLOADS, portable_set.CHECKPOINTS)
        )
        self._own = own_client_ids(session.identity)
        self._auth_refs: dict[bytes, None] = {}
        self._pairs = self._checked = 0

    def streams(self, streams: Sequence[tuple[str, EpochLabels]]) -> PortableExport:
        status = self._session.api.status()
        identity = followed_identity(self._session.hub, status.identity())
        self._put(portable_set.IDENTITY, identity.encode())
        self._put(portable_set.IDENTITY_SIG, status.identity_sig)
        for name in (portable_set.CARD, portable_set.KEYSTORE):
            self._put(name, portable_set.small(self._session.root / name))
        logs = (log for name, labels in streams for log in epoch_logs(self._session, labels, name))
        states = tuple(state for log in logs if (state := self._log(log)) is not None)
        url = self._session.api.transport.url
        sync = SyncState(hub_url=url, limits=status.limits, labels=states)
        self._put(portable_set.SYNC_STATE, sync.encode())
        return PortableExport(
            labels=len(states),
            pairs=self._pairs,
            checkpoints=self._checked,
            tokens=self._tokens(),
            attachments=self._attachments(),
        )

    def _log(self, log: LabelLogRef) -> LabelState | None:
        end = read_log_head(self._session, log, 0)
        if end is None:
            return None
        first = 1
        if not is_readable(self._session.api, log.label, 1):
            first = first_readable(self._session.api, log.label, 1, end.stream_seq)
        ahead = checkpoints(self._session, log, first)
        checkpoint, last = next(ahead, None), end
        for pair in self._replayed(log, first, end.stream_seq):
            self._pair(pair)
            last = pair.receipt
            if checkpoint is not None and checkpoint.upto_seq == last.stream_seq:
                verify_checkpoint(self._session, log, checkpoint, last)
                self._checkpoints.write(checkpoint.encode())
                self._checked, checkpoint = self._checked + 1, next(ahead, None)
        return LabelState(
            stream=log.name,
            profile=log.labels.profile,
            epoch=log.epoch,
            label=log.label,
            first_seq=first,
            peaks_before=self._peaks_before(log, first),
            last_stream_seq=last.stream_seq,
            last_mmr_root=last.mmr_root,
        )

    def _replayed(self, log: LabelLogRef, first: int, last: int) -> Iterator[Pair]:
        for page in replay(self._session, log, LabelRange(from_seq=first, to_seq=last)):
            yield from page
            self._progress(self._pairs, None)

    def _pair(self, pair: Pair) -> None:
        self._receipts.write(pair.receipt.encode())
        self._payloads.write(pair.msg.encode())
        self._pairs += 1
        auth_ref = pair.msg.auth_ref
        if pair.msg.client_id in self._own and auth_ref and len(self._auth_refs) < MAX_TOKENS:
            self._auth_refs[auth_ref] = None

    def _peaks_before(self, log: LabelLogRef, first: int) -> tuple[bytes, ...]:
        if first == 1:
            return ()
        receipt: Receipt = receipt_at(self._session, log, first)
        proof = self._session.api.consistency(log.label, first - 1, first)
        proof.verify_after(proof.before(), size=first, root=receipt.mmr_root)
        return proof.peaks_before

    def _tokens(self) -> int:
        """Write the capabilities of our own messages that the hub knows; their number."""
        tokens = [
            token for auth_ref in self._auth_refs if (token := self._token(auth_ref)) is not None
        ]
        self._put(portable_set.CAP_TOKENS, b"".join(token_.encode() for token_ in tokens))
        return len(tokens)

    def _token(self, auth_ref: bytes) -> CapToken | None:
        try:
            token = self._session.api.capability(auth_ref).token
        except HubRefused as error:
            if not is_missing(error):
                raise
            return None
        if token.auth_ref() != auth_ref:
            raise Untrusted(f"expected capability {auth_ref.hex()}, got another one from the hub")
        return token

    def _attachments(self) -> int:
        """Copy the client's attachments, verified against their names; their number."""
        into = self._work / portable_set.ATTACHMENTS
        into.mkdir(mode=durable.DIR_MODE)
        paths = sorted((self._session.root / portable_set.ATTACHMENTS).glob("[0-9a-f]" * 64))
        for path in paths:
            durable.write(into / path.name, portable_set.attachment(path))
        return len(paths)

    def _put(self, name: str, raw: bytes) -> None:
        durable.write(self._work / name, raw)


@contextmanager
def _sequence(path: Path) -> Iterator[BinaryIO]:
    with path.open("xb") as file:
        path.chmod(durable.FILE_MODE)
        yield file
        file.flush()
        durable.sync(file.fileno())


def _seal(work: Path) -> None:
    manifest = portable_set.manifest_of(work)
    durable.write(work / portable_set.MANIFEST, manifest.encode())
    durable.sync_directory(work)
