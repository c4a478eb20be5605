"""A hub that must be the one that is pinned: by its name, an identity file, or a client's state."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, NoReturn

import typer

from cli.console import manner
from cli.failure import UNPROVEN, Refused, Unproven
from cli.options import HubOptions, key_in_hex
from veen import identity_store
from veen.client import trust
from veen.client.address import resolve
from veen.client.hub_api import HubApi
from veen.client.state import load
from veen.hub_identity import HubIdentity
from veen.identity_file import SignedIdentity, read_signed
from veen.keystore.directory import ClientDir
from veen.tooling import StatusResponse

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
    """What an offline check knows of a hub's identity beside the document it is to check."""

    hub_identity: HubIdentityOption = None
    known_hubs: Annotated[
        Path | None,
        typer.Option(
            "--known-hubs",
            envvar="VEEN_KNOWN_HUBS",
            metavar="DIR",
            help="Where the newest identity of each hub is remembered.",
        ),
    ] = None

    def newest(self, hub_id: bytes) -> HubIdentity | None:
        """The newest identity of a hub that is given or remembered; None where neither is."""
        return identity_store.newest_known(hub_id, self.hub_identity, self.known_hubs)

    def words(self) -> list[str]:
        """The same for a job that is submitted, which reads these files itself."""
        given = {"--hub-identity": self.hub_identity, "--known-hubs": self.known_hubs}
        pairs = [(option, str(path.absolute())) for option, path in given.items() if path]
        return [word for pair in pairs for word in pair]

    def remembered(self, hub_id: bytes) -> HubIdentity | None:
        """The identity of another hub, where one is remembered."""
        return None if self.known_hubs is None else identity_store.known(self.known_hubs, hub_id)

    def learn(self, offered: SignedIdentity) -> None:
        """Remember an identity that extends the one remembered; a first one is never taken."""
        if self.known_hubs is not None and identity_store.known(
            self.known_hubs, offered.identity.hub_id
        ):
            identity_store.remember(self.known_hubs, offered)


def own_identity(what: str, hub: HubIdentity) -> str:
    """Why nothing is proven by an identity that came with what is checked."""
    return (
        f"unproven: {hub.described()}, is {what}'s own: a newer one, in which that key has "
        "retired, may exist; give the newest you know (--hub-identity, --known-hubs)"
    )


def end_unproven(why: str) -> NoReturn:
    """End with the exit code for absent evidence, once what was checked is shown."""
    if manner().json:
        raise typer.Exit(UNPROVEN)
    raise Unproven(why)


@dataclass(frozen=True, slots=True, kw_only=True)
class PinnedHubOptions(HubOptions):
    """A hub to ask, of which something here says who it must be."""

    hub_identity: HubIdentityOption = None
    client: Annotated[
        Path | None,
        typer.Option("--client", metavar="DIR", help="A client that has pinned the hub."),
    ] = None

    def pinned_status(self, api: HubApi) -> StatusResponse:
        """The hub's status, once its identity follows from all that is pinned here."""
        known = list(self._known())
        if self.hub_id is None and not known:
            raise Refused(
                f"nothing pins the hub at {self.hub}: give --hub-id, --hub-identity, a --client "
                "that has met it, or its data directory as --hub"
            )
        found = api.status()
        offered = found.identity()
        if self.hub_id is not None:
            trust.pinned(offered, key_in_hex("--hub-id", self.hub_id))
        for one in known:
            trust.followed(one, offered)
        return found

    def _known(self) -> Iterator[HubIdentity]:
        address = resolve(self.hub)
        if address.identity is not None:
            yield address.identity
        if self.hub_identity is not None:
            yield read_signed(self.hub_identity).identity
        if self.client is not None:
            state = load(ClientDir(self.client.absolute()).state)
            if address.url in state.hubs:
                yield state.hubs[address.url].identity
