"""Up to which recorder checkpoint a query on Spark can speak: as far as the archive goes.

The archive is pushed after a checkpoint was made, so it is behind the index for a while each time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from recorder.archive.store import HubArchive, NoArchive
from recorder.index.home import IndexHome
from recorder.index.snapshot import snapshot
from recorder.query.descriptor import Descriptor
from recorder.service.engine import NoCheckpoint
from veen.errors import VeenError
from veen.hub_identity import HubIdentity
from veen.label import label, routing_key
from veen.objects.port import NotAllowed, StoreRefused
from veen.recorder_checkpoint import RecorderCheckpoint
from veen.stream import stream_id

_REMEDY = "run veen archive push, then submit the query again"


class NotArchived(VeenError):
    """The archive has reached no checkpoint that speaks of the streams of a query."""


class ArchivedCheckpoints:
    """``archive`` opens the archive, ``hub`` is the identity as it is known by now."""

    def __init__(
        self,
        index: IndexHome,
        archive: Callable[[], HubArchive],
        hub: Callable[[], HubIdentity],
    ) -> None:
        self._index = index
        self._archive = archive
        self._hub = hub

    def latest(self, descriptor: Descriptor) -> RecorderCheckpoint:
        """The latest one that index and archive have reached in every stream of the scope."""
        ends = self._ends(descriptor.scope)
        with snapshot(self._index) as held:
            held.refuse_alarms()
            newest = held.latest(descriptor.scope)
            if newest is None:
                raise NoCheckpoint
            _refuse_missing(newest, ends)
            reached = (one for one in held.agreed(descriptor.scope) if _reaches(ends, one))
            found = next(reached, None)
        if found is None:
            raise NotArchived(f"the archive has reached no recorder checkpoint yet: {_REMEDY}")
        found.verify(self._hub())
        return found

    def _ends(self, streams: Sequence[str]) -> dict[str, int]:
        try:
            archive = self._archive()
            manifest = archive.latest()
        except NotAllowed:
            raise
        except (StoreRefused, NoArchive) as error:
            raise NotArchived(f"{error}: {_REMEDY}") from error
        routing = routing_key(archive.keys.hub_id)
        refs = {one: manifest.ref(label(routing, stream_id(one), 0)) for one in streams}
        return {one: ref.end_seq if ref else 0 for one, ref in refs.items()}


def _refuse_missing(newest: RecorderCheckpoint, ends: Mapping[str, int]) -> None:
    """A checkpoint from before the first event would be reached, and would tell nothing."""
    for stream, archived in ends.items():
        end = newest.end(stream)
        if not archived and end is not None and end.last_seq:
            raise NotArchived(f"the archive holds nothing of {stream}: {_REMEDY}")


def _reaches(ends: Mapping[str, int], checkpoint: RecorderCheckpoint) -> bool:
    found = ((archived, checkpoint.end(stream)) for stream, archived in ends.items())
    return all(end is not None and end.last_seq <= archived for archived, end in found)
