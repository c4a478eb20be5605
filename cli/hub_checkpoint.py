"""``veen hub``, commands for a checkpoint: fetch and verify it, verify its witnesses.

The hub must be pinned: by its id, an identity file, or a client's state.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, NoReturn

import typer

from cli.console import global_options, progress, show
from cli.errors import UNPROVEN, Unproven
from cli.options import HubOptions, StreamOption, key_in_hex
from veen import identity_store
from veen.checkpoint import Checkpoint
from veen.client.checkpoints import signed_receipt, verify_recomputed
from veen.client.hub_api import HubApi
from veen.client.log_head import LabelLogRef
from veen.client.session import load_state
from veen.client.transport import resolve_address
from veen.errors import Refused, Untrusted
from veen.hub_identity import HubIdentity, followed_identity, pinned_identity
from veen.identity_store import SignedIdentity, read_signed
from veen.keystore.directory import ClientDir
from veen.label import DEFAULT_PROFILE, EpochLabels, routing_key, stream_id
from veen.wire.api import StatusResponse

HubIdentityOption = Annotated[
    Path | None,
    typer.Option(
        "--hub-identity",
        metavar="FILE",
        help="Newest known identity of the hub: hub-identity.cbor, its .sig beside it.",
    ),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownHubOptions:
    """What an offline verification knows of a hub's identity besides the document itself."""

    hub_identity: HubIdentityOption = None
    known_hubs: Annotated[
        Path | None,
        typer.Option(
            "--known-hubs",
            envvar="VEEN_KNOWN_HUBS",
            metavar="DIR",
            help="Directory with the newest known identity of each hub.",
        ),
    ] = None

    def newest(self, hub_id: bytes) -> HubIdentity | None:
        """The newest identity of a hub that is given or remembered, if there is one."""
        return identity_store.newest_known(hub_id, self.hub_identity, self.known_hubs)

    def words(self) -> list[str]:
        """The same as arguments of a submitted job, which reads these files itself."""
        given = {"--hub-identity": self.hub_identity, "--known-hubs": self.known_hubs}
        pairs = [(option, str(path.absolute())) for option, path in given.items() if path]
        return [argument for pair in pairs for argument in pair]

    def remembered(self, hub_id: bytes) -> HubIdentity | None:
        """The remembered identity of another hub, if there is one."""
        return None if self.known_hubs is None else identity_store.known(self.known_hubs, hub_id)

    def learn(self, offered: SignedIdentity) -> None:
        """Update a remembered identity with one that extends it; a first identity is not stored."""
        if self.known_hubs is not None and identity_store.known(
            self.known_hubs, offered.identity.hub_id
        ):
            identity_store.remember(self.known_hubs, offered)


def own_identity(what: str, hub: HubIdentity) -> str:
    """The note that an identity from the document itself proves nothing."""
    return (
        f"unproven: {hub.described()}, is {what}'s own: a newer one, in which that key has "
        "retired, may exist; give the newest you know (--hub-identity, --known-hubs)"
    )


def end_unproven(why: str) -> NoReturn:
    """Exit with the code for absent evidence, after the result is shown."""
    if global_options().json:
        raise typer.Exit(UNPROVEN)
    raise Unproven(why)


@dataclass(frozen=True, slots=True, kw_only=True)
class PinnedHubOptions(HubOptions):
    """A hub whose identity is pinned here."""

    hub_identity: HubIdentityOption = None
    client: Annotated[
        Path | None,
        typer.Option("--client", metavar="DIR", help="A client that has pinned the hub."),
    ] = None

    def pinned_status(self, api: HubApi) -> StatusResponse:
        """The hub's status, after verifying its identity against everything pinned here."""
        known = list(self._known())
        if self.hub_id is None and not known:
            raise Refused(
                f"nothing pins the hub at {self.hub}: give --hub-id, --hub-identity, a --client "
                "that has met it, or its data directory as --hub"
            )
        status = api.status()
        offered = status.identity()
        if self.hub_id is not None:
            pinned_identity(offered, key_in_hex("--hub-id", self.hub_id))
        for item in known:
            followed_identity(item, offered)
        return status

    def _known(self) -> Iterator[HubIdentity]:
        address = resolve_address(self.hub)
        if address.identity is not None:
            yield address.identity
        if self.hub_identity is not None:
            yield read_signed(self.hub_identity).identity
        if self.client is not None:
            state = load_state(ClientDir(self.client.absolute()).state)
            if address.url in state.hubs:
                yield state.hubs[address.url].identity


def checkpoint(
    at: PinnedHubOptions,
    stream: StreamOption,
    upto: Annotated[
        int, typer.Option("--upto", min=1, metavar="SEQ", help="Last stream_seq of the checkpoint.")
    ],
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="FILE", help="Write the CHECKPOINT to this file."),
    ] = None,
) -> None:
    """Create or fetch a checkpoint of a stream, and verify it for a pinned hub.

    Pin the hub with --hub-id, --hub-identity, --client, or its data directory as --hub. The root
    is recomputed from every message up to SEQ, which takes as long as reading them. While two hub
    keys overlap, signatures of both are required. Only for streams without epochs.

    Example: veen hub checkpoint --hub ./hub --stream record/line-1 --upto 10 --out cp.cbor
    """
    with at.open() as api:
        status = at.pinned_status(api)
        hub = status.identity()
        labels = EpochLabels(routing_key(hub.hub_id), stream_id(stream), DEFAULT_PROFILE)
        log = LabelLogRef(labels, stream, 0)
        verified = _verified(api, log, hub, upto)
        with progress("verify", "messages") as report:
            count = verify_recomputed(api, log, hub, verified, report)
    if out is not None:
        out.write_bytes(verified.encode())
    show(
        {
            "label": log.label.hex(),
            "upto_seq": verified.upto_seq,
            "mmr_root": verified.mmr_root.hex(),
            "epoch": verified.epoch,
            "hub_id": hub.hub_id.hex(),
            "recomputed_from": count,
        }
    )


def _verified(api: HubApi, log: LabelLogRef, hub: HubIdentity, upto: int) -> Checkpoint:
    """Verify that the checkpoint matches the receipt at its upto_seq."""
    checkpoint = api.checkpoint(log.label, upto)
    if (checkpoint.label_curr, checkpoint.upto_seq) != (log.label, upto):
        raise Untrusted(
            f"{log.at(upto)}: expected a checkpoint of label {log.label.hex()} up to {upto}, got "
            f"one of {checkpoint.label_curr.hex()} up to {checkpoint.upto_seq}"
        )
    checkpoint.verify_labels(log.labels)
    receipt = signed_receipt(api, log, hub, upto)
    # Requested after the checkpoint was made, which is therefore no later.
    now = api.status().hub_ts
    hub.verify_checkpoint(
        checkpoint,
        log.labels.profile,
        not_before=receipt.hub_ts,
        not_after=max(now, receipt.hub_ts),
    )
    if checkpoint.mmr_root != receipt.mmr_root:
        raise Untrusted(f"{log.at(upto)}: the checkpoint has another root than the receipt")
    return checkpoint


def verify_rotation(
    checkpoint: Annotated[
        Path, typer.Option("--checkpoint", metavar="FILE", help="Checkpoint of the hub.")
    ],
    old_key: Annotated[str, typer.Option(metavar="HEX", help="The old hub_pk.")],
    new_key: Annotated[str, typer.Option(metavar="HEX", help="The new hub_pk.")],
) -> None:
    """Verify that a checkpoint of the overlap is signed by both keys.

    Example: veen hub verify-rotation --checkpoint cp.cbor --old-key d36a… --new-key efb3…
    """
    decoded = Checkpoint.decode(checkpoint.read_bytes())
    for name, public in (("old", old_key), ("new", new_key)):
        if not decoded.is_witnessed_by(key_in_hex(f"--{name}-key", public)):
            raise Untrusted(f"{checkpoint.name} is not witnessed by the {name} key")
    if not decoded.is_signed_by(key_in_hex("--new-key", new_key)):
        raise Untrusted(f"{checkpoint.name} is not signed by the new key")
    show(
        {"checkpoint": str(checkpoint), "upto_seq": decoded.upto_seq},
        f"{checkpoint.name}: signed by the new key, witnessed by both",
    )
