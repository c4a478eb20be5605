"""``veen anchor``: have roots remembered outside of the hub, and prove it (ANCHOR0)."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from cli.anchor_trust import AnchorTrust
from cli.checkpoint_options import (
    NO_IDENTITY,
    ConfigOnlyOption,
    FetchOption,
    anchored_document,
    chosen,
    document,
    door_of,
    moment,
)
from cli.checkpoint_trust import kept_identities, newest_of
from cli.console import notice, show
from cli.failure import Refused
from cli.options import HubIdOption, key_in_hex
from cli.pinned_hub import KnownHubOptions, end_unproven
from recorder.anchor import book as books
from recorder.anchor.book import Book, Outcome
from recorder.anchor.port import Anchor, kind_of
from recorder.anchor.refs import Ref, read_refs
from recorder.checkpoints import hub_papers
from recorder.checkpoints import shelf as shelves
from recorder.checkpoints.door import anchor_of
from recorder.settings import DEFAULT_PATH, load
from veen.errors import Untrusted
from veen.hub_identity import HubIdentity
from veen.recorder_checkpoint import RecorderCheckpoint

app = typer.Typer(
    help="Have roots remembered outside of the hub, and prove it.", no_args_is_help=True
)


@app.command()
def publish(
    checkpoint_id: Annotated[
        str | None,
        typer.Argument(metavar="[ID]", help="Beginning of a checkpoint_id; else the latest."),
    ] = None,
    config: ConfigOnlyOption = DEFAULT_PATH,
    due: Annotated[
        bool, typer.Option("--due", help="Only what the cadence asks for, and what failed before.")
    ] = False,
) -> None:
    """Publish the root of a checkpoint, and keep the anchor_ref beside it.

    What fails is remembered, and tried again by the next publish --due or by
    veen recorder checkpoint run.

    Example: veen anchor publish --config recorder.toml
    """
    door, now = door_of(load(config)), int(time.time())
    found = door.book()
    if due:
        found.ask_when_due(now)
        outcomes = found.work(now)
    else:
        outcomes = [found.do(found.ask(chosen(door.shelf(), checkpoint_id), now), now)]
    failed = [one.error for one in outcomes if one.error is not None]
    if failed:
        failed[0].add_note(f"{len(failed)} of {len(outcomes)} failed; veen anchor list tells more")
        raise failed[0]
    show({"anchors": [_outcome(one) for one in outcomes], "status": _status(found, now)})


@dataclass(frozen=True, slots=True, kw_only=True)
class BelieveOptions(AnchorTrust):
    """Whom to believe: given here, or as the recorder's settings say."""

    hub_id: HubIdOption = None
    identity: Annotated[
        Path | None,
        typer.Option("--identity", metavar="DIR", help="Folder with the hub's identity documents."),
    ] = None
    config: ConfigOnlyOption = DEFAULT_PATH

    def anchors(self) -> Mapping[str, Anchor]:
        found = self.given()
        configured = None if found else anchor_of(load(self.config).anchor, os.urandom)
        return found if configured is None else {configured.kind: configured}

    def verify_signature(
        self, checkpoint: RecorderCheckpoint, beside: Path, known: KnownHubOptions
    ) -> HubIdentity | None:
        """Refuse a document that its hub, or the hub that was named, did not sign.

        The newest identity that is known decides; None where none is.
        """
        if self.hub_id is not None and checkpoint.hub_id != key_in_hex("--hub-id", self.hub_id):
            raise Untrusted(f"the checkpoint is of hub {checkpoint.hub_id.hex()}")
        papers = hub_papers.read(self.identity or beside)
        if papers is not None and papers.hub_id != checkpoint.hub_id and self.identity is None:
            papers = None
        settings = load(self.config) if self.config.exists() else None
        kept = kept_identities(settings, checkpoint.hub_id) if settings else ()
        hub = newest_of([papers, *kept, known.newest(checkpoint.hub_id)])
        checkpoint.verify(hub_papers.of_document(checkpoint, hub))
        return hub


@app.command()
def verify(
    checkpoint: Annotated[
        Path, typer.Option("--checkpoint", metavar="FILE", help="The recorder checkpoint.")
    ],
    believe: BelieveOptions,
    known: KnownHubOptions,
    anchor: Annotated[
        list[Path] | None,
        typer.Option("--anchor", metavar="FILE", help="An anchor_ref; else those beside it."),
    ] = None,
) -> None:
    """Prove, without any network, who knew the root of a checkpoint, and since when.

    Anchors are looked for in the folder anchors/ beside the checkpoint, as the recorder keeps
    them. Every one is checked; exit code 3 says that one does not hold. Where no identity of the
    hub is beside it or given, it is unproven (exit code 6): its key may have retired before.

    Example: veen anchor verify --checkpoint last.cbor --anchor file-1.cbor --ledger anchors.ledger
    """
    found = shelves.read(checkpoint)
    root = checkpoint.absolute().parent.parent
    hub = believe.verify_signature(found, root, known)
    refs = [_read(path) for path in anchor or ()] or _beside(checkpoint, found)
    if not refs:
        raise Refused(f"no anchor of {checkpoint} is known: name one with --anchor")
    kinds, proven = believe.anchors(), []
    for name, raw in refs:
        if kind_of(raw) in kinds:
            proven.append(anchored_document(name, books.verify(kinds[kind_of(raw)], found, raw)))
        else:
            notice(f"{name} was not checked: give what proves anchors of kind {kind_of(raw)}")
    if not proven:
        raise Refused("no anchor was checked: give --ledger or --tsa-certificate")
    show({**document(found), "proven": proven, "hub_identity_known": hub is not None})
    if hub is None:
        end_unproven(f"{checkpoint} is unproven: {NO_IDENTITY}")


@app.command("list")
def list_(config: ConfigOnlyOption = DEFAULT_PATH, fetch: FetchOption = False) -> None:
    """List the anchors of all checkpoints, what is still to be done, and whether it is late.

    Example: veen anchor list --config recorder.toml
    """
    door = door_of(load(config))
    names = door.shelf().names()
    if fetch:
        door.shelf().fetch()
        for name in (names := door.shelf().names()):
            door.refs().fetch(name.checkpoint_id)
    rows: list[dict[str, Any]] = [
        {
            "checkpoint_id": name.checkpoint_id.hex(),
            "created_at": moment(name.created_at),
            "anchor": ref.name,
        }
        for name in names
        for ref in door.refs().of(name.checkpoint_id)
    ]
    status = _status(door.book(), int(time.time())) if door.is_anchoring() else {}
    show({"anchors": rows, "status": status})


def _outcome(one: Outcome) -> dict[str, Any]:
    return {
        "checkpoint_id": one.task.checkpoint_id.hex(),
        "anchor": one.ref.name if one.ref else None,
        "attempts": one.task.attempts + 1,
    }


def _status(book: Book, now: int) -> dict[str, Any]:
    found = book.status(now)
    oldest = found.oldest_waiting
    return {
        "checkpoints": found.checkpoints,
        "anchored": found.anchored,
        "waiting": found.waiting,
        "oldest_waiting": oldest.checkpoint_id.hex() if oldest else None,
        "waiting_since": moment(oldest.created_at) if oldest else None,
        "pending": found.pending,
        "failed": found.failed,
        "unstored": found.unstored,
        "attempts": found.attempts,
        "failures": found.failures,
        "last_error": found.last_error,
        "next_try": moment(found.next_try) if found.next_try else None,
        "late_checkpoints": found.lateness.checkpoints,
        "late_seconds": found.lateness.seconds,
    }


def _read(path: Path) -> tuple[str, bytes]:
    return path.name, path.read_bytes()


def _beside(path: Path, found: RecorderCheckpoint) -> list[tuple[str, bytes]]:
    folder = path.absolute().parent
    refs: list[Ref] = []
    for place in (folder, folder.parent):
        refs = refs or read_refs(place / "anchors" / found.checkpoint_id.hex())
    return [(ref.name, ref.anchor_ref) for ref in refs]
