"""``veen anchor``: publish roots outside of the hub, and verify that (ANCHOR0)."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from cli.checkpoint import (
    NO_IDENTITY,
    ConfigOnlyOption,
    FetchOption,
    anchored_document,
    chosen,
    document,
    moment,
    newest_of,
    recorder_services,
    stored_identities,
)
from cli.console import notice, show
from cli.hub_checkpoint import KnownHubOptions, end_unproven
from cli.options import HubIdOption, key_in_hex
from recorder.anchor.anchors import (
    Anchor,
    AnchorOutcome,
    AnchorScheduler,
    Ref,
    kind_of,
    read_refs,
    verify_anchors,
)
from recorder.anchor.ledger import AnchorLedger
from recorder.anchor.rfc3161 import TsaLine
from recorder.checkpoints.schedule import anchor_of, time_stamps
from recorder.checkpoints.store import identity_of_document, read_document, read_identity
from recorder.query.package_verify import AnchorCheck
from recorder.settings import DEFAULT_PATH, load
from veen.errors import Refused, Untrusted
from veen.hub_identity import HubIdentity
from veen.recorder_checkpoint import RecorderCheckpoint


@dataclass(frozen=True, slots=True, kw_only=True)
class AnchorTrust:
    ledger: Annotated[
        Path | None, typer.Option("--ledger", metavar="FILE", help="Ledger file, or a copy.")
    ] = None
    tsa_certificate: Annotated[
        list[Path] | None,
        typer.Option(
            "--tsa-certificate", metavar="PEM", help="Certificate of the TSA chain; repeatable."
        ),
    ] = None
    tsa_policy: Annotated[
        str | None, typer.Option("--tsa-policy", metavar="OID", help="Required TSA policy.")
    ] = None

    def given(self) -> dict[str, Anchor]:
        """The verifiers of anchors, by kind."""
        anchors: list[Anchor] = []
        if self.ledger is not None:
            anchors.append(AnchorLedger(self.ledger, os.urandom))
        if self.tsa_certificate:
            line = TsaLine(url="")
            anchors.append(time_stamps(tuple(self.tsa_certificate), self.tsa_policy, line))
        return {anchor.kind: anchor for anchor in anchors}

    def checks(self) -> dict[str, AnchorCheck]:
        """The same, in the form that the verification of a proof package needs."""
        return {kind: _check(anchor) for kind, anchor in self.given().items()}


def _check(anchor: Anchor) -> Callable[[RecorderCheckpoint, bytes], str]:
    def check(checkpoint: RecorderCheckpoint, ref: bytes) -> str:
        proof = verify_anchors(anchor, checkpoint, ref)
        return f"{proof.witness} knew the root at {moment(proof.time)}"

    return check


app = typer.Typer(help="Publish roots outside of the hub, and prove it.", no_args_is_help=True)


@app.command()
def publish(
    checkpoint_id: Annotated[
        str | None,
        typer.Argument(metavar="[ID]", help="Prefix of a checkpoint_id; default: the latest."),
    ] = None,
    config: ConfigOnlyOption = DEFAULT_PATH,
    due: Annotated[
        bool, typer.Option("--due", help="Publish only scheduled and failed anchors.")
    ] = False,
) -> None:
    """Publish the root of a checkpoint, and store its anchor_ref.

    A failed anchor is stored and retried by the next publish --due or by veen recorder checkpoint
    run.

    Example: veen anchor publish --config recorder.toml
    """
    services, now = recorder_services(load(config)), int(time.time())
    scheduler = services.anchor_scheduler()
    if due:
        scheduler.ask_when_due(now)
        outcomes = scheduler.work(now)
    else:
        outcomes = [
            scheduler.do(
                scheduler.ask(chosen(services.checkpoint_store(), checkpoint_id), now), now
            )
        ]
    failed = [outcome.error for outcome in outcomes if outcome.error is not None]
    if failed:
        failed[0].add_note(f"{len(failed)} of {len(outcomes)} failed; see veen anchor list")
        raise failed[0]
    show(
        {"anchors": [_outcome(outcome) for outcome in outcomes], "status": _status(scheduler, now)}
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class BelieveOptions(AnchorTrust):
    """What to trust: given here, or from the recorder's settings."""

    hub_id: HubIdOption = None
    identity: Annotated[
        Path | None,
        typer.Option("--identity", metavar="DIR", help="Directory with the identities of the hub."),
    ] = None
    config: ConfigOnlyOption = DEFAULT_PATH

    def anchors(self) -> Mapping[str, Anchor]:
        evidence = self.given()
        configured = None if evidence else anchor_of(load(self.config).anchor, os.urandom)
        return evidence if configured is None else {configured.kind: configured}

    def verify_signature(
        self, checkpoint: RecorderCheckpoint, beside: Path, known: KnownHubOptions
    ) -> HubIdentity | None:
        """Refuse a document that its hub, or the hub that was named, did not sign.

        The newest identity that is known decides; None where none is.
        """
        if self.hub_id is not None and checkpoint.hub_id != key_in_hex("--hub-id", self.hub_id):
            raise Untrusted(f"the checkpoint belongs to another hub, {checkpoint.hub_id.hex()}")
        identity_files = read_identity(self.identity or beside)
        if (
            identity_files is not None
            and identity_files.hub_id != checkpoint.hub_id
            and self.identity is None
        ):
            identity_files = None
        settings = load(self.config) if self.config.exists() else None
        identities = stored_identities(settings, checkpoint.hub_id) if settings else ()
        hub = newest_of([identity_files, *identities, known.newest(checkpoint.hub_id)])
        checkpoint.verify(identity_of_document(checkpoint, hub))
        return hub


@app.command()
def verify(
    checkpoint: Annotated[
        Path, typer.Option("--checkpoint", metavar="FILE", help="Recorder checkpoint.")
    ],
    believe: BelieveOptions,
    known: KnownHubOptions,
    anchor: Annotated[
        list[Path] | None,
        typer.Option(
            "--anchor", metavar="FILE", help="anchor_ref; default: those beside the checkpoint."
        ),
    ] = None,
) -> None:
    """Verify offline who knew the root of a checkpoint, and since when.

    Reads the anchors in anchors/ beside the checkpoint, and verifies every one; exits with 3 if
    one is invalid. Without an identity of the hub, beside the checkpoint or given, the result is
    unproven (exit code 6): the key may have been retired before.

    Example: veen anchor verify --checkpoint last.cbor --anchor file-1.cbor --ledger anchors.ledger
    """
    recorder_checkpoint = read_document(checkpoint)
    root = checkpoint.absolute().parent.parent
    hub = believe.verify_signature(recorder_checkpoint, root, known)
    refs = [_read(path) for path in anchor or ()] or _beside(checkpoint, recorder_checkpoint)
    if not refs:
        raise Refused(f"no anchor of {checkpoint} is stored: give one with --anchor")
    kinds, proven = believe.anchors(), []
    for name, raw in refs:
        if kind_of(raw) in kinds:
            proven.append(
                anchored_document(
                    name, verify_anchors(kinds[kind_of(raw)], recorder_checkpoint, raw)
                )
            )
        else:
            notice(f"{name} was not checked: give what proves anchors of kind {kind_of(raw)}")
    if not proven:
        raise Refused("no anchor was verified: give --ledger or --tsa-certificate")
    show({**document(recorder_checkpoint), "proven": proven, "hub_identity_known": hub is not None})
    if hub is None:
        end_unproven(f"{checkpoint} is unproven: {NO_IDENTITY}")


@app.command("list")
def list_(config: ConfigOnlyOption = DEFAULT_PATH, fetch: FetchOption = False) -> None:
    """List the anchors of all checkpoints, those pending, and whether any is late.

    Example: veen anchor list --config recorder.toml
    """
    services = recorder_services(load(config))
    names = services.checkpoint_store().names()
    if fetch:
        services.checkpoint_store().fetch()
        for name in (names := services.checkpoint_store().names()):
            services.refs().fetch(name.checkpoint_id)
    rows: list[dict[str, Any]] = [
        {
            "checkpoint_id": name.checkpoint_id.hex(),
            "created_at": moment(name.created_at),
            "anchor": ref.name,
        }
        for name in names
        for ref in services.refs().of(name.checkpoint_id)
    ]
    status = (
        _status(services.anchor_scheduler(), int(time.time())) if services.is_anchoring() else {}
    )
    show({"anchors": rows, "status": status})


def _outcome(outcome: AnchorOutcome) -> dict[str, Any]:
    return {
        "checkpoint_id": outcome.task.checkpoint_id.hex(),
        "anchor": outcome.ref.name if outcome.ref else None,
        "attempts": outcome.task.attempts + 1,
    }


def _status(scheduler: AnchorScheduler, now: int) -> dict[str, Any]:
    status = scheduler.status(now)
    oldest = status.oldest_waiting
    return {
        "checkpoints": status.checkpoints,
        "anchored": status.anchored,
        "waiting": status.waiting,
        "oldest_waiting": oldest.checkpoint_id.hex() if oldest else None,
        "waiting_since": moment(oldest.created_at) if oldest else None,
        "pending": status.pending,
        "failed": status.failed,
        "unstored": status.unstored,
        "attempts": status.attempts,
        "failures": status.failures,
        "last_error": status.last_error,
        "next_try": moment(status.next_try) if status.next_try else None,
        "late_checkpoints": status.lateness.checkpoints,
        "late_seconds": status.lateness.seconds,
    }


def _read(path: Path) -> tuple[str, bytes]:
    return path.name, path.read_bytes()


def _beside(path: Path, checkpoint: RecorderCheckpoint) -> list[tuple[str, bytes]]:
    folder = path.absolute().parent
    refs: list[Ref] = []
    for place in (folder, folder.parent):
        refs = refs or read_refs(place / "anchors" / checkpoint.checkpoint_id.hex())
    return [(ref.name, ref.anchor_ref) for ref in refs]
