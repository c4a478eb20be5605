"""``veen fold`` and ``veen snapshot``: the state of an archived stream by an overlay, and its
hash.
"""

from __future__ import annotations

import json
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import typer

from cli.console import global_options, show
from cli.errors import INTEGRITY, OK
from cli.options import (
    DEFAULT_HUB,
    CaOption,
    ClientOptions,
    HubOption,
    ProfileOptions,
    key_in_hex,
    recipient_of,
)
from cli.store_options import FoldEngine, Folder, FoldOptions, StoreOptions, submit
from recorder.folds import snapshots
from recorder.folds.cache import NoCache
from recorder.folds.job import FoldRequest, FoldResult
from recorder.folds.log import ArchivedLog
from recorder.folds.snapshots import Expected
from veen.captoken import read_token
from veen.errors import Untrusted
from veen.overlay.overlay import Folded
from veen.overlay.snapshot import OVERLAYS, SCHEMA, StateCheckpoint, overlay_named, state_hash
from veen.system import durable


def fold(
    overlay: Annotated[
        str,
        typer.Argument(metavar="OVERLAY", help=", ".join(item.name for item in OVERLAYS)),
    ],
    at: StoreOptions,
    options: FoldOptions,
    profile: ProfileOptions,
    from_seq: Annotated[
        int, typer.Option("--from", min=1, metavar="N", help="First stream_seq.")
    ] = 1,
    to_seq: Annotated[
        int | None,
        typer.Option("--to", min=1, metavar="N", help="Last stream_seq; default: the head."),
    ] = None,
    account: Annotated[
        str | None,
        typer.Option("--account", metavar="HEX", help="Show only this account or key."),
    ] = None,
    drop_summaries: Annotated[
        bool, typer.Option("--drop-summaries", help="Delete stored summaries first.")
    ] = False,
) -> None:
    """Fold the events of an archived stream into a deterministic state.

    Example: veen fold wallet.ledger --store file:///mnt/archive --stream pay/main --client ./me
    """
    overlay_named(overlay)
    part = key_in_hex("--account", account) if account else None
    folder = Folder(at=at, options=options, profile=profile, archive=options.archive(at))
    expected = replace(options.requested(overlay, profile), from_seq=from_seq, to_seq=to_seq)
    job = expected.job(folder.archive)
    if drop_summaries:
        folder.drop_summaries(job.label)
    show(_format_fold(options.stream, folder.fold(job), part))


def _format_fold(stream: str, result: FoldResult, part: bytes | None) -> dict[str, Any]:
    overlay, folded = result.known(), result.opened()
    state = folded.state if part is None else overlay.part(folded.state, part)
    shown = overlay.state(Folded(state, folded.skipped))
    return {
        "stream": stream,
        "overlay": result.overlay,
        "label": result.label.hex(),
        "from": result.from_seq,
        "to": result.to_seq,
        "mmr_root": result.mmr_root.hex(),
        "receipt": result.anchor.object_hash.hex(),
        "digest": result.digest().hex(),
        "state_hash": state_hash(result.overlay, state.encode()).hex(),
        "skipped": {reason: places["count"] for reason, places in shown["skipped"].items()},
        "first_skipped": {reason: places["first"] for reason, places in shown["skipped"].items()},
        "state": shown["state"],
    }


app = typer.Typer(
    help="Create and verify signed snapshots of a folded state.", no_args_is_help=True
)

StateIdOption = Annotated[
    str | None, typer.Option("--state-id", metavar="HEX", help="Part of the state; default: all.")
]
UptoOption = Annotated[
    int | None, typer.Option("--upto", min=1, metavar="N", help="Last stream_seq included.")
]


@dataclass(frozen=True, slots=True, kw_only=True)
class SendOptions:
    """The hub to send a snapshot to, and its recipient."""

    into: Annotated[
        str | None, typer.Option("--into", metavar="NAME", help="Stream to send it to.")
    ] = None
    hub: HubOption = DEFAULT_HUB
    ca: CaOption = None
    to: Annotated[
        str | None, typer.Option("--to", metavar="CARD", help="Recipient; default: this identity.")
    ] = None
    cap: Annotated[
        Path | None, typer.Option("--cap", metavar="FILE", help="Capability to write with.")
    ] = None

    def send(self, body: bytes, options: FoldOptions) -> dict[str, Any]:
        given = ClientOptions(
            client=options.client,
            hub=self.hub,
            ca=self.ca,
            passphrase_file=options.passphrase_file,
        )
        with given.open() as client:
            sent = client.send(
                self.into or "",
                body,
                schema=SCHEMA,
                recipient=recipient_of(self.to) if self.to else None,
                capability=read_token(self.cap) if self.cap else None,
            )
        return {"sent_to": self.into, "sent_as": sent.receipt.stream_seq}


@app.command()
def create(
    at: StoreOptions,
    options: FoldOptions,
    profile: ProfileOptions,
    send: SendOptions,
    overlay: Annotated[str, typer.Option("--overlay", metavar="NAME", help="The state_class.")],
    state_id: StateIdOption = None,
    upto: UptoOption = None,
    out: Annotated[
        Path | None, typer.Option("--out", metavar="FILE", help="Write the snapshot to this file.")
    ] = None,
) -> None:
    """Fold a stream up to a stream_seq, and write the result as a snapshot.

    Example: veen snapshot create --store file:///a --stream b --client ./me --overlay orset --out s
    """
    if (send.into is None) == (out is None):
        raise typer.BadParameter("give one of --into STREAM and --out FILE")
    overlay_named(overlay)
    folder = Folder(at=at, options=options, profile=profile, archive=options.archive(at))
    expected = options.requested(overlay, profile)
    folded = folder.fold(_upto(expected, upto).job(folder.archive))
    name = key_in_hex("--state-id", state_id) if state_id else folded.label
    claim = folded.prefix().checkpoint(name)
    if out is not None:
        durable.write(out, claim.encode())
    sent = {} if send.into is None else send.send(claim.encode(), options)
    show({"stream": options.stream, **_claimed(claim), **sent})


@app.command()
def verify(
    at: StoreOptions,
    options: FoldOptions,
    profile: ProfileOptions,
    snapshot: Annotated[
        Path | None, typer.Option("--snapshot", metavar="FILE", help="The snapshot.")
    ] = None,
    within: Annotated[
        str | None, typer.Option("--in", metavar="NAME", help="Archived stream that holds it.")
    ] = None,
    overlay: Annotated[
        str | None, typer.Option("--overlay", metavar="NAME", help="Expected state_class.")
    ] = None,
    state_id: StateIdOption = None,
    upto: UptoOption = None,
) -> None:
    """Verify a snapshot by folding its log; report the first field that differs.

    Example: veen snapshot verify --store file:///a --stream b --client ./me --snapshot s
    """
    if (snapshot is None) == (within is None):
        raise typer.BadParameter("give one of --snapshot FILE and --in STREAM")
    folder = Folder(at=at, options=options, profile=profile, archive=options.archive(at))
    expected = Expected(
        state_class=overlay,
        state_id=key_in_hex("--state-id", state_id) if state_id else None,
        upto_seq=upto,
    )
    if snapshot is not None:
        claim = StateCheckpoint.decode(snapshot.read_bytes())
    else:
        claim = _snapshot_in(folder, within or "", expected)
    detail = _verdict(folder, claim, expected)
    _show_comparison(options.stream, detail)


def _upto(request: FoldRequest, upto: int | None) -> FoldRequest:
    return request if upto is None else replace(request, to_seq=upto)


def _snapshot_in(folder: Folder, stream: str, expected: Expected) -> StateCheckpoint:
    requested = replace(folder.options.requested("", folder.profile), stream=stream)
    job = requested.job(folder.archive)
    log = ArchivedLog(folder.archive, job.manifest, job.label, cache=NoCache(), block=job.block)
    return snapshots.find(log, folder.options.reader(folder.profile), expected)


def _verdict(folder: Folder, claim: StateCheckpoint, expected: Expected) -> dict[str, Any]:
    if folder.options.engine is FoldEngine.SPARK:
        return _on_spark(folder, claim, expected)
    requested = folder.options.requested(claim.state_class, folder.profile)
    order, end_seq = requested.job(folder.archive), requested.end_seq(folder.archive)
    return snapshots.verify(claim, expected, order, end_seq, folder.fold).document()


def _on_spark(folder: Folder, claim: StateCheckpoint, expected: Expected) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="veen-snapshot-") as scratch:
        file = Path(scratch) / "snapshot.cbor"
        file.write_bytes(claim.encode())
        named = {
            "--overlay": expected.state_class,
            "--state-id": expected.state_id.hex() if expected.state_id else None,
            "--upto": expected.upto_seq,
        }
        argv = [str(word) for pair in named.items() if pair[1] is not None for word in pair]
        submission = folder.submission("verify_snapshot", "--snapshot", file, *argv)
        raw = submit(submission, folder.options.passphrase(), accept=(OK, INTEGRITY))
    document: dict[str, Any] = json.loads(raw)
    return document


def _show_comparison(stream: str, fields: dict[str, Any]) -> None:
    document = {"stream": stream, **fields}
    mismatch = fields["first_mismatch"]
    if mismatch is None:
        show(document)
        return
    blame = f"{mismatch['field']}: expected {mismatch['computed']}, got {mismatch['claimed']}"
    if global_options().json:
        show(document | {"ok": False, "code": "UNTRUSTED", "detail": blame})
        raise typer.Exit(INTEGRITY)
    show(document)
    raise Untrusted(f"{stream}: the snapshot does not match the log: {blame}")


def _claimed(claim: StateCheckpoint) -> dict[str, Any]:
    return {
        "state_class": claim.state_class,
        "state_id": claim.state_id.hex(),
        "upto_stream_seq": claim.upto_stream_seq,
        "mmr_root": claim.mmr_root.hex(),
        "state_hash": claim.state_hash.hex(),
    }
