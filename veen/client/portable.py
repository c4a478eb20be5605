"""Import of a portable set: as a new client directory, or into the existing one (spec 15)."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from veen.client import portable_files, portable_set
from veen.client.portable_files import PortableExport, VerifiedSet, verify_set
from veen.client.receipts import rebuilding_receipts
from veen.client.session import ClientState, KnownHub, LabelView, Session, load_state, save_state
from veen.hub_identity import HubIdentity, followed_identity
from veen.invariants import ClientCursor
from veen.keystore.directory import ClientDir, ClientDirLock, IdentityExists
from veen.label import DEFAULT_PROFILE, Profile
from veen.receipt import Receipt
from veen.system import durable
from veen.system.environment import Progress, no_progress

IMPORTED: Final = "imported"
"""The origin of a pin."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Imported:
    """The result of an import; ``is_new`` if a client directory was created."""

    is_new: bool
    labels: int
    pairs: int
    checkpoints: int
    tokens: int
    attachments: int


def export(
    session: Session,
    streams: Sequence[str],
    out: Path,
    *,
    profile: Profile = DEFAULT_PROFILE,
    progress: Progress = no_progress,
) -> PortableExport:
    named = [(name, session.labels(name, profile)) for name in streams]
    return portable_files.export(session, named, out, progress)


def import_(
    directory: Path, into: Path, progress: Progress = no_progress, known: HubIdentity | None = None
) -> Imported:
    """Verify a whole set, then create or update a client directory.

    The set is copied first, so that what is verified is what is used. The import is atomic.
    ``known`` is the newest identity of the hub known elsewhere.
    """
    with _staged(into) as stage:
        manifest = portable_set.taken(directory, stage / "set")
        home = ClientDir(into)
        if os.path.lexists(home.keystore):
            with ClientDirLock(home):
                state = load_state(home.state)
                hubs = [hub.identity for hub in state.hubs.values()]
                hubs += [known] if known is not None else []
                set_ = verify_set(
                    stage / "set", manifest, dict(state.views.items()), progress, hubs
                )
                _merge(home, state, set_)
            return _imported(set_, is_new=False)
        _verify_vacant(into)
        hubs = [known] if known is not None else []
        set_ = verify_set(stage / "set", manifest, {}, progress, hubs)
        _make(stage / "client", set_)
        durable.rename(stage / "client", into)
        return _imported(set_, is_new=True)


def _imported(set_: VerifiedSet, *, is_new: bool) -> Imported:
    return Imported(
        is_new=is_new,
        labels=len(set_.views),
        pairs=set_.pairs,
        checkpoints=set_.checkpoints,
        tokens=set_.tokens,
        attachments=len(_attachments(set_)),
    )


@contextmanager
def _staged(into: Path) -> Iterator[Path]:
    stage = into.with_name(f".{into.name}.import")
    shutil.rmtree(stage, ignore_errors=True)
    stage.mkdir(mode=durable.DIR_MODE, parents=True)
    try:
        yield stage
    finally:
        shutil.rmtree(stage, ignore_errors=True)


def _verify_vacant(into: Path) -> None:
    if os.path.lexists(into) and (not into.is_dir() or any(into.iterdir())):
        raise IdentityExists(f"{into} exists and is not a client directory: choose another name")


def _make(root: Path, set_: VerifiedSet) -> None:
    """Create a client directory, which is renamed into place once it is complete."""
    home = ClientDir(root)
    for directory in (root, home.attachments, home.evidence):
        directory.mkdir(mode=durable.DIR_MODE)
    for name in _attachments(set_):
        durable.write(root / name, portable_set.attachment(set_.root / name))
    with rebuilding_receipts(root, lambda _: False) as rebuilt:
        for receipt in set_.own_receipts():
            rebuilt.add(receipt)
    hub = KnownHub(identity=set_.hub, origin=IMPORTED)
    save_state(home.state, ClientState(hubs={set_.hub_url: hub}, views=set_.views))
    durable.write(home.card, portable_set.small(set_.root / portable_set.CARD))
    durable.write(home.keystore, portable_set.small(set_.root / portable_set.KEYSTORE))


def _merge(home: ClientDir, state: ClientState, set_: VerifiedSet) -> None:
    """Add the streams of a set to the directory of the same identity; the state is written last.

    A view that ends before the set begins cannot be linked to it without a resync.
    """
    card = home.read_card()
    if (card.id_sign, card.client_id) != (set_.card.id_sign, set_.card.client_id):
        raise IdentityExists(f"{home.root} is the directory of another identity, or of a newer one")
    for known in state.named(set_.hub.hub_id):
        followed_identity(known.identity, set_.hub)
    for name in _attachments(set_):
        durable.write_once(home.root / name, portable_set.attachment(set_.root / name))
    with rebuilding_receipts(home.root, lambda item: _is_outside(set_, item)) as rebuilt:
        for receipt in set_.own_receipts():
            rebuilt.add(receipt)
    for label, view in set_.views.items():
        ours = state.views.get(label)
        if ours is None or ours.peaks.size >= set_.first_seqs[label] - 1:
            state = state.with_view(label, _merged_view(ours, view))
    held = state.hubs.get(set_.hub_url)
    if held is None or held.identity != set_.hub:
        origin = held.origin if held else IMPORTED
        state = state.with_hub(set_.hub_url, KnownHub(identity=set_.hub, origin=origin))
    save_state(home.state, state)


def _is_outside(set_: VerifiedSet, receipt: Receipt) -> bool:
    view = set_.views.get(receipt.label)
    if view is None:
        return True
    return not set_.first_seqs[receipt.label] <= receipt.stream_seq <= view.peaks.size


def _merged_view(ours: LabelView | None, theirs: LabelView) -> LabelView:
    """The larger of two views of the same history, with the later cursors of both."""
    if ours is None:
        return theirs
    cursors: dict[bytes, ClientCursor] = dict(ours.cursors)
    for client_id, cursor in theirs.cursors.items():
        cursors[client_id] = max(
            cursor, ours.cursor(client_id), key=lambda item: (item.client_seq, item.prev_ack)
        )
    if theirs.peaks.size <= ours.peaks.size:
        return replace(ours, cursors=cursors)
    ahead = ours.unlinked is not None and ours.unlinked.stream_seq > theirs.peaks.size
    return replace(theirs, cursors=cursors, unlinked=ours.unlinked if ahead else None)


def _attachments(set_: VerifiedSet) -> list[str]:
    return [file.name for file in set_.manifest.files if "/" in file.name]
