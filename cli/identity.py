"""``veen keygen`` and ``veen id``: create, show and rotate an identity, and its usage (spec 3,
KEX0.2).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from cli.console import notice
from cli.console import show as show_document
from cli.options import (
    ClientOption,
    PassphraseFileOption,
    new_passphrase,
    passphrase_of,
    runtime,
)
from veen.client.outbox import events_in
from veen.client.session import ClientState, load_state
from veen.errors import Refused
from veen.keystore.card import IdentityCard, SignedPrekey
from veen.keystore.directory import ClientDir
from veen.keystore.sealed import DAY_SEC, PREKEY_SEC

MAX_MESSAGES: Final = 256
"""The limit on a label without epochs; with epochs, a client_id is for a single epoch."""
_NOTICE_SEC: Final = 30 * DAY_SEC
_OPEN_KEYS = "whoever can read the directory can act as this client"


@dataclass(frozen=True, slots=True, kw_only=True)
class SentUsage:
    """The usage of a client_id on a label; epoch 0 is a stream without epochs."""

    label: bytes
    stream: str
    epoch: int
    client_id: bytes
    messages: int


def advice(card: IdentityCard, sent: Sequence[SentUsage], now: int) -> tuple[str, ...]:
    """Advice for the owner of an identity, in the order of the labels."""
    own = [usage for usage in sent if usage.client_id == card.client_id]
    return (*_messages(own), *_epochs(own), *_unused_prekeys(card.prekeys, now))


def _messages(own: Iterable[SentUsage]) -> Iterator[str]:
    for usage in own:
        if usage.epoch == 0 and usage.messages >= MAX_MESSAGES:
            yield (
                f"{usage.messages} messages on {usage.stream}, at most {MAX_MESSAGES} are "
                "recommended "
                "for one client_id: run veen id rotate"
            )


def _epochs(own: Sequence[SentUsage]) -> Iterator[str]:
    for stream in sorted({usage.stream for usage in own}):
        epochs = {usage.epoch for usage in own if usage.stream == stream and usage.messages}
        if len(epochs) > 1:
            yield (
                f"used in {len(epochs)} epochs of {stream}, one is recommended "
                "for one client_id: run veen id rotate"
            )


def _unused_prekeys(prekeys: Sequence[SignedPrekey], now: int) -> Iterator[str]:
    last = max(prekey.expires_at for prekey in prekeys)
    if now > last:
        yield "every prekey has expired: run veen id rotate and hand out the new card"
    elif now > last - _NOTICE_SEC:
        days = (last - now) // DAY_SEC
        yield f"the prekey expires in {days} days: run veen id rotate and hand out the new card"


app = typer.Typer(help="Show an identity, or rotate its client_id.", no_args_is_help=True)


def keygen(
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="Directory to create.")],
    passphrase_file: PassphraseFileOption = None,
    insecure_plain: Annotated[
        bool, typer.Option("--insecure-plain", help="Leave the private keys unprotected.")
    ] = False,
    prekey_days: Annotated[
        int,
        typer.Option(
            "--prekey-days", min=1, max=36_500, metavar="N", help="Lifetime of the prekey."
        ),
    ] = PREKEY_SEC // DAY_SEC,
) -> None:
    """Create an identity: keys under a passphrase, and a public card.

    Example: veen keygen --out ~/.local/share/veen/client-main
    """
    if insecure_plain and passphrase_file is not None:
        raise typer.BadParameter("--insecure-plain and --passphrase-file exclude each other")
    client = ClientDir(out.absolute())
    client.refuse_inhabited()
    passphrase = None if insecure_plain else new_passphrase(passphrase_file)
    if insecure_plain:
        notice(f"WARNING: THE KEYS ARE NOT PROTECTED: {_OPEN_KEYS}")
    world = runtime()
    identity = client.create(
        now=world.clock(),
        random=world.random,
        passphrase=passphrase,
        prekey_sec=prekey_days * DAY_SEC,
    )
    show_document({**_card(identity.card), **_place(client)})


@app.command()
def show(client: ClientOption) -> None:
    """Show the card and the labels of an identity, without its passphrase.

    Example: veen id show --client ~/.local/share/veen/client-main
    """
    directory = ClientDir(client.absolute())
    known = load_state(directory.state)
    show_document({**_card(directory.read_card()), **_place(directory), "labels": _labels(known)})


@app.command()
def rotate(client: ClientOption, passphrase_file: PassphraseFileOption = None) -> None:
    """Rotate client_id and prekey; nothing on the wire links them to the old ones.

    Capabilities name a client_id: issue them again for the new one.

    Example: veen id rotate --client ~/.local/share/veen/client-main
    """
    directory, world = ClientDir(client.absolute()), runtime()
    _verify_outbox_empty(directory)
    passphrase = passphrase_of(directory, passphrase_file)
    identity = directory.rotate(world.clock(), world.random, passphrase)
    last = identity.retired_client_ids[-1]
    document = {
        **_card(identity.card),
        **_place(directory),
        "retired_client_id": last.client_id.hex(),
        "retired_at": last.retired_at,
    }
    show_document(document)


@app.command()
def usage(client: ClientOption) -> None:
    """Show how much each client_id was used, and whether to rotate it.

    Example: veen id usage --client ~/.local/share/veen/client-main
    """
    directory, now = ClientDir(client.absolute()), runtime().clock()
    card, sent = directory.read_card(), _sent(load_state(directory.state))
    due = advice(card, sent, now)
    warnings = [f"the keystore is plain: {_OPEN_KEYS}"] if directory.sealed().is_plain else []
    document = {
        "client_id": card.client_id.hex(),
        "created_at": card.created_at,
        "age_sec": max(0, now - card.created_at),
        "prekeys": _prekeys(card),
        "max_messages": MAX_MESSAGES,
        "labels": [_used(item, card) for item in sent],
        "rotation_recommended": bool(due),
        "advice": [*due, *warnings],
    }
    show_document(document)


def _verify_outbox_empty(directory: ClientDir) -> None:
    """Refuse a rotation while the outbox has messages of the current client_id."""
    count = events_in(directory.outbox)
    if count:
        raise Refused(
            f"{count} events wait in the outbox under the present client_id: "
            "send them first with veen outbox flush"
        )


def _card(card: IdentityCard) -> dict[str, Any]:
    return {
        "client_id": card.client_id.hex(),
        "id_sign_public": card.id_sign.hex(),
        "id_dh_public": card.id_dh.hex(),
        "created_at": card.created_at,
        "prekeys": _prekeys(card),
    }


def _prekeys(card: IdentityCard) -> list[dict[str, Any]]:
    return [
        {"prekey": prekey.prekey.hex(), "expires_at": prekey.expires_at} for prekey in card.prekeys
    ]


def _place(client: ClientDir) -> dict[str, Any]:
    return {"protection": client.sealed().kdf, "identity_card": str(client.card)}


def _labels(known: ClientState) -> list[dict[str, Any]]:
    return [
        {
            "label": label.hex(),
            "stream": view.stream,
            "last_stream_seq": view.peaks.size,
            "last_mmr_root": view.peaks.root().hex() if view.peaks.size else None,
        }
        for label, view in sorted(known.views.items())
    ]


def _sent(known: ClientState) -> list[SentUsage]:
    return [
        SentUsage(
            label=label,
            stream=view.stream,
            epoch=view.epoch,
            client_id=client_id,
            messages=cursor.client_seq,
        )
        for label, view in sorted(known.views.items())
        for client_id, cursor in sorted(view.cursors.items())
    ]


def _used(usage: SentUsage, card: IdentityCard) -> dict[str, Any]:
    return {
        "label": usage.label.hex(),
        "stream": usage.stream,
        "epoch": usage.epoch,
        "client_id": usage.client_id.hex(),
        "is_current": usage.client_id == card.client_id,
        "msgs_sent": usage.messages,
    }
