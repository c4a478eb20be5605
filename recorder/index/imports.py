"""Which import streams an index takes up, and the pinned hubs that their events come from.

It lies beside the generations of the index: no log tells it, and a rebuild must not lose it.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from recorder.index.home import IndexHome
from recorder.index.imported import ImportedFollower, NotOpened
from recorder.index.tables import transaction
from recorder.index.writer import IndexWriter
from veen import durable
from veen.client.client import Client
from veen.client.errors import HubRefused
from veen.errors import Code, Malformed, Untrusted, VeenError
from veen.hub_identity import HubIdentity
from veen.schema import Version
from veen.tooling import StreamInfo
from veen.wire import WireMap

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Imports(WireMap):
    """``hubs`` were verified when they were pinned; a directory with an index is guarded."""

    ver: Version = 1
    streams: tuple[str, ...] = ()
    hubs: tuple[HubIdentity, ...] = ()

    def joined(self, streams: Iterable[str], hubs: Mapping[bytes, HubIdentity]) -> Imports:
        """With these as well; a hub that was known has its newer keys from now on."""
        known = {one.hub_id: one for one in self.hubs}
        for hub_id, given in hubs.items():
            if hub_id not in known or not _is_older(given, known[hub_id]):
                known[hub_id] = given
        return Imports(
            streams=tuple(sorted({*self.streams, *streams})),
            hubs=tuple(known[hub_id] for hub_id in sorted(known)),
        )

    def follower(self, client: Client, writer: IndexWriter) -> ImportedFollower:
        hubs = {one.hub_id: one for one in self.hubs}
        return ImportedFollower(client, writer, hubs, frozenset(self.streams))


def _is_older(given: HubIdentity, known: HubIdentity) -> bool:
    """Whether a key that is current in one identity has retired in the other.

    Keys are not compared one by one: a trust directory leaves out those that it revokes.
    """
    retired = {key.key_id for key in known.hub_keys if key.valid_until is not None}
    return given.current.valid_until is None and given.current.key_id in retired


def read(home: IndexHome) -> Imports:
    """What is taken up; nothing where nobody has asked for any."""
    try:
        return Imports.decode(home.imports.read_bytes())
    except FileNotFoundError:
        return Imports()
    except Malformed as error:
        raise Malformed(
            f"{home.imports}: {error}; remove it, and run veen recorder index imports again"
        ) from error


def keep(home: IndexHome, imports: Imports) -> None:
    """Whoever follows the index takes it up with the next look at the hub."""
    durable.make_directory(home.root)
    durable.write(home.imports, imports.encode())


class ImportTurns:
    """The imports of an index that is followed: each stream is read again when it has grown.

    One of which something does not hold is left where it is and told of; the others go on.
    """

    def __init__(self, client: Client, writer: IndexWriter) -> None:
        self._client = client
        self._writer = writer
        self._home = IndexHome(writer.generation.root.parent)
        self._wanted = Imports()
        self._heads: dict[str, int] = {}
        self._troubles: dict[str, str] = {}

    @property
    def trouble(self) -> str | None:
        return next(iter(self._troubles.values()), None)

    def round(self, infos: Sequence[StreamInfo]) -> int:
        """How many events were indexed; ``infos`` is what the hub says of its streams."""
        found = read(self._home)
        if found != self._wanted:
            self._wanted, self._heads, self._troubles = found, {}, {}
        follower = found.follower(self._client, self._writer)
        heads = {
            one.name: max((label.last_stream_seq for label in one.labels), default=0)
            for one in infos
        }
        self._note_heads(found.streams, infos)
        return sum(self._take(follower, name, heads.get(name)) for name in found.streams)

    def _note_heads(self, streams: Sequence[str], infos: Sequence[StreamInfo]) -> None:
        """How far each import stream goes by what the hub says, so that a lag shows."""
        known = [one for one in infos if one.name in streams and one.labels]
        rows = [
            self._writer.stream(one.name)._replace(
                head_seq=max(label.last_stream_seq for label in one.labels),
                head_ts=max(label.last_hub_ts for label in one.labels),
            )
            for one in known
        ]
        with transaction(self._writer.db):
            for row in rows:
                self._writer.update(row)

    def _take(self, follower: ImportedFollower, target: str, head: int | None) -> int:
        """A hub that lets in what it does not know has streams of which it tells no end."""
        if head is not None and self._heads.get(target, 0) == head:
            return 0
        try:
            count = follower.catch_up(target)
        except HubRefused as error:
            if error.code == Code.UNAVAILABLE.value:
                raise
            count = 0 if error.code == Code.NOT_FOUND.value else self._left(target, error)
        except (Untrusted, NotOpened) as error:
            count = self._left(target, error)
        else:
            self._troubles.pop(target, None)
        self._heads[target] = head or 0
        return count

    def _left(self, target: str, error: VeenError) -> int:
        told = f"imports of {target} are not indexed: {error}"
        _log.critical("%s", told)
        self._troubles[target] = told
        return 0
