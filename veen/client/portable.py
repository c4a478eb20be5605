"""Taking a portable set in: as a new client directory, or into the one it came from (spec 15)."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from veen import durable
from veen.client import own_receipts, portable_export, portable_set, trust
from veen.client.portable_check import VerifiedSet, verify_set
from veen.client.portable_export import Exported
from veen.client.progress import Progress, untold
from veen.client.session import Session
from veen.client.state import KnownHub, State, load, save
from veen.client.view import LabelView
from veen.hub_identity import HubIdentity
from veen.invariants import ClientCursor
from veen.keystore.directory import ClientDir, IdentityExists, Lock
from veen.profile import DEFAULT_PROFILE, Profile
from veen.receipt import Receipt

IMPORTED: Final = "imported"
"""How a pin came about."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Imported:
    """``is_new`` says that a client directory was made, and not one brought up to the set."""

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
    progress: Progress = untold,
) -> Exported:
    named = [(name, session.labels(name, profile)) for name in streams]
    return portable_export.export(session, named, out, progress)


def import_(
    directory: Path, into: Path, progress: Progress = untold, known: HubIdentity | None = None
) -> Imported:
    """Verify a set, all of it, and only then make or change a client directory.

    The set is copied first: what was verified is what is used. A crash leaves ``into`` as it
    was, or done. ``known`` is the newest identity of the hub known elsewhere.
    """
    with _staged(into) as stage:
        manifest = portable_set.taken(directory, stage / "set")
        home = ClientDir(into)
        if os.path.lexists(home.keystore):
            with Lock(home):
                state = load(home.state)
                hubs = [one.identity for one in state.hubs.values()]
                hubs += [known] if known is not None else []
                found = verify_set(stage / "set", manifest, dict(state.views), progress, hubs)
                _merge(home, state, found)
            return _imported(found, is_new=False)
        _refuse_occupied(into)
        hubs = [known] if known is not None else []
        found = verify_set(stage / "set", manifest, {}, progress, hubs)
        _make(stage / "client", found)
        durable.rename(stage / "client", into)
        return _imported(found, is_new=True)


def _imported(found: VerifiedSet, *, is_new: bool) -> Imported:
    return Imported(
        is_new=is_new,
        labels=len(found.views),
        pairs=found.pairs,
        checkpoints=found.checkpoints,
        tokens=found.tokens,
        attachments=len(_attachments(found)),
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


def _refuse_occupied(into: Path) -> None:
    if os.path.lexists(into) and (not into.is_dir() or any(into.iterdir())):
        raise IdentityExists(f"{into} exists and is no client directory: take another name")


def _make(root: Path, found: VerifiedSet) -> None:
    """A client directory of its own, complete before it gets its name."""
    home = ClientDir(root)
    for directory in (root, home.attachments, home.evidence):
        directory.mkdir(mode=durable.DIR_MODE)
    for name in _attachments(found):
        durable.write(root / name, portable_set.attachment(found.root / name))
    with own_receipts.rebuilding(root, lambda _: False) as rebuilt:
        for receipt in found.own_receipts():
            rebuilt.add(receipt)
    hub = KnownHub(identity=found.hub, origin=IMPORTED)
    save(home.state, State(hubs={found.hub_url: hub}, views=found.views))
    durable.write(home.card, portable_set.small(found.root / portable_set.CARD))
    durable.write(home.keystore, portable_set.small(found.root / portable_set.KEYSTORE))


def _merge(home: ClientDir, state: State, found: VerifiedSet) -> None:
    """The identity stays as it is; what it knows of its streams grows. The state comes last.

    A view that ends before a set begins cannot be tied to it here: that takes a resync.
    """
    card = home.read_card()
    if (card.id_sign, card.client_id) != (found.card.id_sign, found.card.client_id):
        raise IdentityExists(f"{home.root} is the directory of another identity, or of a newer one")
    for known in state.named(found.hub.hub_id):
        trust.followed(known.identity, found.hub)
    for name in _attachments(found):
        durable.write_once(home.root / name, portable_set.attachment(found.root / name))
    with own_receipts.rebuilding(home.root, lambda one: _is_outside(found, one)) as rebuilt:
        for receipt in found.own_receipts():
            rebuilt.add(receipt)
    for label, view in found.views.items():
        ours = state.views.get(label)
        if ours is None or ours.peaks.size >= found.first_seqs[label] - 1:
            state = state.with_view(label, _further(ours, view))
    held = state.hubs.get(found.hub_url)
    if held is None or held.identity != found.hub:
        origin = held.origin if held else IMPORTED
        state = state.with_hub(found.hub_url, KnownHub(identity=found.hub, origin=origin))
    save(home.state, state)


def _is_outside(found: VerifiedSet, receipt: Receipt) -> bool:
    view = found.views.get(receipt.label)
    if view is None:
        return True
    return not found.first_seqs[receipt.label] <= receipt.stream_seq <= view.peaks.size


def _further(ours: LabelView | None, theirs: LabelView) -> LabelView:
    """Whichever of two views of one history goes further, with the later cursors of both."""
    if ours is None:
        return theirs
    cursors: dict[bytes, ClientCursor] = dict(ours.cursors)
    for client_id, cursor in theirs.cursors.items():
        cursors[client_id] = max(
            cursor, ours.cursor(client_id), key=lambda one: (one.client_seq, one.prev_ack)
        )
    if theirs.peaks.size <= ours.peaks.size:
        return replace(ours, cursors=cursors)
    ahead = ours.unlinked is not None and ours.unlinked.stream_seq > theirs.peaks.size
    return replace(theirs, cursors=cursors, unlinked=ours.unlinked if ahead else None)


def _attachments(found: VerifiedSet) -> list[str]:
    return [one.name for one in found.manifest.files if "/" in one.name]
