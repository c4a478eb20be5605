"""The options of ``veen recorder replay``: who reads, and what."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import reduce
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from cli.options import (
    CaOption,
    ClientOptions,
    HubIdOption,
    PrincipalOption,
    TokenFileOption,
    key_in_hex,
)
from cli.passphrase import PassphraseFileOption
from cli.pinned_hub import KnownHubOptions
from cli.recorder_options import RecorderConfigOption, RecorderOptions
from recorder import timestamp
from recorder.replay.wanted import Wanted, by_place, by_time
from recorder.settings import DEFAULT_PATH, load
from veen.client.client import Client
from veen.client.state import load as load_state
from veen.client.trust import newest
from veen.errors import Malformed
from veen.hub_identity import HubIdentity
from veen.keystore.directory import ClientDir
from veen.recorder_checkpoint import RecorderCheckpoint

_REPLAYED: Final = ("record/", "import/")


@dataclass(frozen=True, slots=True, kw_only=True)
class ReaderOptions:
    """Who reads: as the recorder's settings say, or any client at a hub. A check needs neither."""

    config: RecorderConfigOption = DEFAULT_PATH
    client: Annotated[
        Path | None,
        typer.Option(
            "--client", metavar="DIR", help="Who reads; else [dags.acting], or [hub] client."
        ),
    ] = None
    hub: Annotated[
        str | None,
        typer.Option("--hub", metavar="HUB", help="A hub, instead of that of the settings."),
    ] = None
    hub_id: HubIdOption = None
    ca: CaOption = None
    principal: PrincipalOption = None
    token_file: TokenFileOption = None
    passphrase_file: PassphraseFileOption = None

    def pinned(self) -> bytes:
        """The hub whose word an output must be: the one named here, or that of the settings."""
        if self.hub_id is not None:
            return key_in_hex("--hub-id", self.hub_id)
        if not self.config.exists():
            raise typer.BadParameter(f"--verify needs --hub-id, or the settings in {self.config}")
        return load(self.config).hub.hub_id

    def newest(self, hub_id: bytes, known: KnownHubOptions) -> HubIdentity | None:
        """The newest identity of the hub: given, remembered, or pinned by whoever reads here."""
        client = self.client
        if client is None and self.config.exists():
            client = load(self.config).hub.client
        pins = load_state(ClientDir(client.absolute()).state).named(hub_id) if client else ()
        given = known.newest(hub_id)
        every = [*(one.identity for one in pins), *([given] if given else [])]
        return reduce(newest, every) if every else None

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
            raise typer.BadParameter("--hub needs --client: the directory of who reads")
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
class WantedOptions:
    """What to replay."""

    stream: Annotated[
        list[str] | None,
        typer.Option("--stream", metavar="NAME", help="A stream; may be given again. Else all."),
    ] = None
    from_seq: Annotated[
        int | None, typer.Option("--from", min=1, metavar="SEQ", help="Begin at this place.")
    ] = None
    to_seq: Annotated[
        int | None, typer.Option("--to", min=1, metavar="SEQ", help="End at this place.")
    ] = None
    start: Annotated[
        str | None,
        typer.Option(
            "--start", metavar="TIME", help="Begin at this hub time: 2026-01-31T08:00:00Z."
        ),
    ] = None
    end: Annotated[
        str | None, typer.Option("--end", metavar="TIME", help="End at this hub time, included.")
    ] = None
    unproven: Annotated[
        bool,
        typer.Option("--unproven", help="Go on above the checkpoint; what is there is marked."),
    ] = False
    no_decrypt: Annotated[
        bool, typer.Option("--no-decrypt", help="Receipts and hashes only; open nothing.")
    ] = False
    with_proofs: Annotated[
        bool,
        typer.Option(
            "--with-proofs", help="Messages, body keys and proofs too, for --verify (not Parquet)."
        ),
    ] = False

    def wanted(self, checkpoint: RecorderCheckpoint) -> Wanted:
        """Without a stream, all ``record/`` and ``import/`` streams that the checkpoint covers."""
        names = self.stream or [one for one in checkpoint.names if one.startswith(_REPLAYED)]
        how: dict[str, Any] = {
            "unproven": self.unproven,
            "opened": not self.no_decrypt,
            "with_proofs": self.with_proofs,
        }
        by_seq = self.from_seq is not None or self.to_seq is not None
        if by_seq and (self.start or self.end):
            raise typer.BadParameter("--from and --to, or --start and --end, not both")
        if by_seq and len(names) != 1:
            raise typer.BadParameter("--from and --to count within one --stream")
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
