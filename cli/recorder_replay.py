"""``veen recorder replay``: recorded events in order, with proofs, and verification of an
output.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
from functools import reduce
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from cli.console import notice, progress, show
from cli.hub_checkpoint import KnownHubOptions, end_unproven, own_identity
from cli.options import (
    CaOption,
    ClientOptions,
    HubIdOption,
    PassphraseFileOption,
    PrincipalOption,
    TokenFileOption,
    key_in_hex,
)
from cli.recorder_options import RecorderConfigOption, RecorderOptions
from recorder import timestamp
from recorder.replay import output
from recorder.replay.job import Job, Replayed
from recorder.replay.plan import HubSource, ReplayPlan, ReplayRequest, by_place, by_time
from recorder.replay.verify import check_file
from recorder.settings import DEFAULT_PATH, load
from veen.client.client import Client
from veen.client.session import load_state
from veen.errors import Malformed
from veen.hub_identity import HubIdentity, newest_identity
from veen.identity_store import SignedIdentity
from veen.keystore.directory import ClientDir
from veen.recorder_checkpoint import RecorderCheckpoint

_REPLAYED: Final = ("record/", "import/")


@dataclass(frozen=True, slots=True, kw_only=True)
class ReaderOptions:
    """The reader: from the recorder's settings, or a client at a hub; not needed for --check."""

    config: RecorderConfigOption = DEFAULT_PATH
    client: Annotated[
        Path | None,
        typer.Option(
            "--client",
            metavar="DIR",
            help="Reading identity; default: [dags.acting], then [hub] client.",
        ),
    ] = None
    hub: Annotated[
        str | None,
        typer.Option("--hub", metavar="HUB", help="Hub; default: that of the settings."),
    ] = None
    hub_id: HubIdOption = None
    ca: CaOption = None
    principal: PrincipalOption = None
    token_file: TokenFileOption = None
    passphrase_file: PassphraseFileOption = None

    def pinned(self) -> bytes:
        """The hub that must have signed an output: given here, or from the settings."""
        if self.hub_id is not None:
            return key_in_hex("--hub-id", self.hub_id)
        if not self.config.exists():
            raise typer.BadParameter(f"--verify needs --hub-id, or the settings in {self.config}")
        return load(self.config).hub.hub_id

    def newest(self, hub_id: bytes, known: KnownHubOptions) -> HubIdentity | None:
        """The newest identity of the hub: given, remembered, or pinned by the reader."""
        client = self.client
        if client is None and self.config.exists():
            client = load(self.config).hub.client
        pins = load_state(ClientDir(client.absolute()).state).named(hub_id) if client else ()
        given = known.newest(hub_id)
        every = [*(pin.identity for pin in pins), *([given] if given else [])]
        return reduce(newest_identity, every) if every else None

    @contextmanager
    def open(self) -> Iterator[Client]:
        if self.hub is None:
            known = RecorderOptions(
                config=self.config,
                client=self.client,
                principal=self.principal,
                passphrase_file=self.passphrase_file,
            )
            with known.open(known.settings()) as client:
                yield client
            return
        if self.client is None:
            raise typer.BadParameter("--hub needs --client, the directory of the reading identity")
        at = ClientOptions(
            client=self.client,
            hub=self.hub,
            hub_id=self.hub_id,
            ca=self.ca,
            principal=self.principal,
            token_file=self.token_file,
            passphrase_file=self.passphrase_file,
        )
        with at.open() as client:
            yield client


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestOptions:
    """What to replay."""

    stream: Annotated[
        list[str] | None,
        typer.Option("--stream", metavar="NAME", help="Stream; repeatable. Default: all."),
    ] = None
    from_seq: Annotated[
        int | None, typer.Option("--from", min=1, metavar="SEQ", help="First stream_seq.")
    ] = None
    to_seq: Annotated[
        int | None, typer.Option("--to", min=1, metavar="SEQ", help="Last stream_seq.")
    ] = None
    start: Annotated[
        str | None,
        typer.Option("--start", metavar="TIME", help="First hub time: 2026-01-31T08:00:00Z."),
    ] = None
    end: Annotated[
        str | None, typer.Option("--end", metavar="TIME", help="Last hub time, included.")
    ] = None
    unproven: Annotated[
        bool,
        typer.Option("--unproven", help="Include events after the checkpoint, marked as unproven."),
    ] = False
    no_decrypt: Annotated[
        bool, typer.Option("--no-decrypt", help="Output receipts and hashes, without decrypting.")
    ] = False
    with_proofs: Annotated[
        bool,
        typer.Option(
            "--with-proofs",
            help="Include messages, body keys and proofs, for --verify (not Parquet).",
        ),
    ] = False

    def requested(self, checkpoint: RecorderCheckpoint) -> ReplayRequest:
        """The streams, by default all ``record/`` and ``import/`` streams of the checkpoint."""
        names = self.stream or [name for name in checkpoint.names if name.startswith(_REPLAYED)]
        how: dict[str, Any] = {
            "unproven": self.unproven,
            "opened": not self.no_decrypt,
            "with_proofs": self.with_proofs,
        }
        by_seq = self.from_seq is not None or self.to_seq is not None
        if by_seq and (self.start or self.end):
            raise typer.BadParameter("give --from and --to, or --start and --end, not both")
        if by_seq and len(names) != 1:
            raise typer.BadParameter("--from and --to need exactly one --stream")
        if by_seq:
            return by_place(names[0], self.from_seq, self.to_seq, **how)
        return by_time(names, _ms("--start", self.start), _ms("--end", self.end), **how)


def _ms(option: str, text: str | None) -> int | None:
    if text is None:
        return None
    try:
        return timestamp.parse(text)
    except Malformed as error:
        raise typer.BadParameter(f"{option}: {error}") from error


class ReplayFormat(Enum):
    JSONL = "jsonl"
    CBOR = "cbor"
    PARQUET = "parquet"


def replay(
    at: ReaderOptions,
    what: RequestOptions,
    known: KnownHubOptions,
    checkpoint: Annotated[
        Path | None,
        typer.Option(
            "--checkpoint", metavar="FILE", help="Checkpoint to prove against; default: the latest."
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="PATH", help="Output file; a directory for Parquet."),
    ] = None,
    format_: Annotated[
        ReplayFormat,
        typer.Option("--format", help="JSON lines, a CBOR sequence, or Parquet files."),
    ] = ReplayFormat.JSONL,
    resume: Annotated[bool, typer.Option("--resume", help="Resume an interrupted output.")] = False,
    verify: Annotated[
        Path | None,
        typer.Option("--verify", metavar="FILE", help="Verify an output, without a hub."),
    ] = None,
) -> None:
    """Replay recorded events in order, each verified against a checkpoint.

    Example: veen recorder replay --stream record/app --start 2026-01-31T08:00:00Z --out app.jsonl
    """
    given = _read_checkpoint(checkpoint)
    if verify is not None:
        _check(verify, at, given, known)
    elif out is None and (resume or format_ is ReplayFormat.PARQUET):
        raise typer.BadParameter("--resume and --format parquet need --out")
    elif format_ is ReplayFormat.PARQUET and what.with_proofs:
        raise typer.BadParameter(
            "--with-proofs needs --format jsonl or cbor: Parquet output has no proofs"
        )
    else:
        _replay(at, what, given, out, format_, resume=resume)


def _replay(
    at: ReaderOptions,
    what: RequestOptions,
    given: RecorderCheckpoint | None,
    out: Path | None,
    format_: ReplayFormat,
    *,
    resume: bool,
) -> None:
    with at.open() as client, progress("replay", "messages") as report:
        job = Job(
            source=HubSource(client),
            requested=what.requested,
            latest=client.session.api.recorder_checkpoint_latest,
            chosen=given,
            progress=report,
        )
        if out is None:
            replayed = job.to_pipe(sys.stdout.buffer, output.form_named(format_.value))
            notice(_summary(replayed))
        elif format_ is ReplayFormat.PARQUET:
            _show(job.to_parts(out, resume=resume), out)
        else:
            form = output.form_named(format_.value)
            _show(job.to_file(out, form, resume=resume), out)


def _check(
    path: Path, at: ReaderOptions, checkpoint: RecorderCheckpoint | None, known: KnownHubOptions
) -> None:
    hub_id = at.pinned()
    newest = at.newest(hub_id, known)
    with progress("verify", "messages") as report:
        verified = check_file(path, hub_id, checkpoint, report, newest)
    known.learn(SignedIdentity(verified.plan.hub, verified.plan.hub_sig))
    show(
        {
            "ok": newest is not None,
            "file": str(path),
            "hub_id": verified.hub.hub_id.hex(),
            "hub_identity": verified.hub.number,
            "hub_identity_since": verified.hub.current.valid_from,
            "hub_identity_known": newest is not None,
            "checkpoint_id": verified.plan.checkpoint_id.hex(),
            "proven": verified.proven,
            "unproven": verified.unproven,
            "kinds": verified.kinds,
            "unopened": verified.unopened,
            "streams": _streams(verified.plan),
        }
    )
    if newest is None:
        end_unproven(f"{path} is {own_identity('the output', verified.hub)}")


def _show(replayed: Replayed, out: Path) -> None:
    show(
        {
            "out": str(out),
            "hub_id": replayed.plan.hub.hub_id.hex(),
            "checkpoint_id": replayed.plan.checkpoint_id.hex(),
            "messages": replayed.plan.count,
            "new": replayed.new,
            "kinds": replayed.kinds,
            "opened": replayed.plan.requested.opened,
            "streams": _streams(replayed.plan),
        }
    )


def _streams(plan: ReplayPlan) -> list[dict[str, Any]]:
    return [
        {
            "stream": stream_range.stream,
            "from": stream_range.from_seq,
            "to": stream_range.to_seq,
            "proven_to": min(stream_range.to_seq, stream_range.proven_to),
        }
        for stream_range in plan.stream_ranges
    ]


def _summary(replayed: Replayed) -> str:
    closed = (
        "" if replayed.plan.requested.opened else "; nothing was opened: receipts and hashes only"
    )
    checkpoint = replayed.plan.checkpoint_id.hex()
    return f"{replayed.new} messages, proven against checkpoint {checkpoint}{closed}"


def _read_checkpoint(path: Path | None) -> RecorderCheckpoint | None:
    if path is None:
        return None
    try:
        return RecorderCheckpoint.decode(path.read_bytes())
    except Malformed as error:
        raise Malformed(f"{path}: expected a recorder checkpoint: {error}") from error
