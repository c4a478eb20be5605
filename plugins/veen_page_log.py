"""The streams of a zone: their ends and rates at the hub, the last checkpoint, and its anchors.

The checkpoint and its anchors are verified without the hub while the page is made.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from veen_page_artefacts import MayRead, seen_by_id
from veen_page_services import ZonePlace, ask, hub_of, reading

from recorder.anchor.anchors import AnchorTask, kind_of, verify_anchors
from recorder.checkpoints.catalogue import RecorderCheckpointName, files
from recorder.checkpoints.checkpoints import verify_next
from recorder.checkpoints.schedule import RecorderServices
from recorder.checkpoints.store import (
    AnchorCadence,
    CheckpointDirectory,
    identity_of_document,
    read_identity,
)
from recorder.index.reader import IndexStatus, StreamLag, status
from recorder.index.tables import IndexHome
from recorder.settings import RecorderHubConfig
from veen.client.credentials import Anonymous, Credentials, Principal
from veen.crypto import SigningKey
from veen.errors import VeenError
from veen.hub_identity import HubIdentity
from veen.keystore.directory import ClientDir
from veen.keystore.sealed import Secrets
from veen.recorder_checkpoint import RecorderCheckpoint
from veen.wire.api import StreamsResponse
from zone.artefacts import Artefact

Heads = Callable[[ZonePlace], Mapping[str, int] | None]
_PATH: Final = "/tooling/streams"
_MOST_BYTES: Final = 4 << 20
PAGE: Final = 50
_BACK: Final = 12
"""The number of checkpoints that a rate is averaged over."""
_NEWEST: Final = 500
"""How many of the last checkpoints are searched for an anchor."""
_LARGEST_LEDGER: Final = 1 << 20
"""The size limit of an anchor ledger, all of which is read to verify an anchor."""
_TASKS: Final = 10


def heads(
    place: ZonePlace, clock: Callable[[], int], random: Callable[[int], bytes]
) -> Mapping[str, int] | None:
    """The last event of each stream that the recorder may read; None if the hub cannot be asked.

    The request is made as the recorder. A key with a passphrase is not used: opening it takes
    too long for a page.
    """
    hub = place.recorder.hub
    if hub.passphrase_file is not None:
        return None
    try:
        who = _credentials(hub, clock, random)
        headers = who.headers("GET", f"{hub.url}{_PATH}", b"")
        with ask(hub_of(place), _PATH, headers | {"Accept": "application/cbor"}) as reply:
            response = StreamsResponse.decode(reply.read(_MOST_BYTES))
    except (VeenError, OSError, ValueError):
        # Whether it answers is shown at the top of the page.
        return None
    return {
        stream.name: max((label.last_stream_seq for label in stream.labels), default=0)
        for stream in response.streams
    }


def _credentials(
    hub: RecorderHubConfig, clock: Callable[[], int], random: Callable[[int], bytes]
) -> Credentials:
    if hub.principal is None:
        return Anonymous()
    # Only read: opening a client directory takes its lock, which the recorder holds.
    secrets = Secrets.decode(ClientDir(hub.client).sealed().open(None))
    return Principal(hub.principal, SigningKey(secrets.client.seed), clock, random)


@dataclass(frozen=True, slots=True, kw_only=True)
class PageStreamRow:
    """A stream. ``head`` is its last known event, ``unsigned`` the number without a checkpoint.

    ``per_minute`` is between checkpoints; None before there are two. ``behind`` are events that are
    not indexed yet, ``unread`` indexed messages that are no events; both are None if the stream is
    not indexed. ``checkpoint`` is the last that covers the stream, if there is one.
    """

    name: str
    head: int
    unsigned: int
    per_minute: float | None
    behind: int | None
    unread: int | None
    checkpoint: RecorderCheckpointName | None


@dataclass(frozen=True, slots=True, kw_only=True)
class PageStreams:
    """The streams. ``asked_sec`` is the age of the heads; None if the hub was not asked. ``unread``
    are messages of all indexed streams, including imported ones. ``made`` are the artefacts of the
    checkpoints, by checkpoint_id in hex."""

    rows: tuple[PageStreamRow, ...]
    total: int
    next_after: str | None
    asked_sec: int | None
    trouble: str | None
    alarms: tuple[str, ...]
    unread: int
    made: Mapping[str, Artefact]


@dataclass(frozen=True, slots=True)
class CheckpointPair:
    """The last checkpoint, and an earlier one to compare with. ``names`` are the newest of
    ``total``, in order of time."""

    last: RecorderCheckpoint | None
    earlier: RecorderCheckpoint | None
    names: tuple[RecorderCheckpointName, ...] = ()
    total: int = 0

    def covering(self, name: str) -> RecorderCheckpointName | None:
        """The last checkpoint that includes a stream."""
        known = (item for item in (self.last, self.earlier) if item and item.end(name))
        return next((RecorderCheckpointName.of(item) for item in known), None)


def stored(services: RecorderServices) -> CheckpointPair:
    """The newest stored checkpoints; names sort by time, and only the newest are read."""
    with reading("the checkpoints"):
        checkpoint_store = services.checkpoint_store()
        names = tuple(checkpoint_store.newest(_NEWEST))
        back = names[-_BACK:]
        return CheckpointPair(
            last=checkpoint_store.get(back[-1]) if back else None,
            earlier=checkpoint_store.get(back[0]) if len(back) > 1 else None,
            names=names,
            total=checkpoint_store.count(),
        )


def streams(
    place: ZonePlace,
    pair: CheckpointPair,
    *,
    now: int,
    may_read: MayRead,
    live: Mapping[str, int] | None = None,
    after: str = "",
) -> PageStreams:
    """The streams of the zone; ``live`` are the current heads, if the hub can be asked."""
    with reading("the index"):
        home = IndexHome(place.recorder.index)
        index = status(home, now) if home.exists() else None
    lags, detail = _lags(index), live or {}
    names = sorted({*detail, *lags, *(pair.last.names if pair.last else ())})
    matching = [name for name in names if name > after]
    ids = [item.checkpoint_id.hex() for item in (pair.last, pair.earlier) if item]
    return PageStreams(
        rows=tuple(
            _row(name, lags.get(name), detail.get(name, 0), pair) for name in matching[:PAGE]
        ),
        total=len(names),
        next_after=matching[PAGE - 1] if len(matching) > PAGE else None,
        asked_sec=0 if live is not None else index.asked_sec if index else None,
        trouble=index.trouble if index else "there is no index yet; veen recorder serve builds it",
        alarms=index.alarms if index else (),
        unread=sum(stream.unread for stream in index.streams) if index else 0,
        made=seen_by_id(place.folder, "checkpoint", ids, may_read),
    )


def _lags(index: IndexStatus | None) -> Mapping[str, StreamLag]:
    """Index lags by stream of the zone's own hub; imported streams are in the bridge's section."""
    own = index.streams if index else ()
    return {item.stream: item for item in own if index and item.hub_id == index.hub_id}


def _row(name: str, lag: StreamLag | None, value: int, pair: CheckpointPair) -> PageStreamRow:
    signed = _seq(pair.last, name)
    head = max(signed, value, lag.head if lag else 0)
    return PageStreamRow(
        name=name,
        head=head,
        unsigned=head - signed,
        per_minute=_rate(name, pair),
        behind=max(head - lag.indexed, 0) if lag else None,
        unread=lag.unread if lag else None,
        checkpoint=pair.covering(name),
    )


def _rate(name: str, pair: CheckpointPair) -> float | None:
    if pair.last is None or pair.earlier is None:
        return None
    seconds = pair.last.created_at - pair.earlier.created_at
    moved = _seq(pair.last, name) - _seq(pair.earlier, name)
    return 60 * moved / seconds if seconds > 0 else None


def _seq(checkpoint: RecorderCheckpoint | None, name: str) -> int:
    end = checkpoint.end(name) if checkpoint else None
    return end.last_seq if end else 0


@dataclass(frozen=True, slots=True)
class CheckpointVerdict:
    """The verification of a checkpoint; ``holds`` is None if it was not verified."""

    holds: bool | None
    detail: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Anchors:
    """``waiting`` are the checkpoints after the last anchored one, among those searched;
    ``has_more`` means that none of those has an anchor, and older ones may."""

    last: RecorderCheckpointName | None
    waiting: int
    has_more: bool
    late_sec: int
    last_error: str | None
    verdict: CheckpointVerdict
    made: Artefact | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoints:
    """``anchors`` is None if anchoring is not configured. ``made`` is the artefact of the last
    checkpoint; None if it was made by hand."""

    checkpoint_id: str | None
    created_at: int | None
    total: int
    verdict: CheckpointVerdict
    made: Artefact | None
    anchors: Anchors | None


def recorder_services(place: ZonePlace, random: Callable[[int], bytes]) -> RecorderServices:
    """The recorder's services with local directories only; object storage is not used."""
    return RecorderServices(place.recorder, None, random)


def checkpoints(
    place: ZonePlace,
    services: RecorderServices,
    pair: CheckpointPair,
    *,
    now: int,
    may_read: MayRead,
) -> Checkpoints:
    with reading("the checkpoints"):
        name = pair.last.checkpoint_id.hex() if pair.last else None
        return Checkpoints(
            checkpoint_id=name,
            created_at=pair.last.created_at if pair.last else None,
            total=pair.total,
            verdict=_verdict(services, pair),
            made=_made(place, "checkpoint", [name] if name else [], may_read),
            anchors=_anchors(place, services, pair, now, may_read)
            if services.is_anchoring()
            else None,
        )


def _anchors(
    place: ZonePlace, services: RecorderServices, pair: CheckpointPair, now: int, may_read: MayRead
) -> Anchors:
    waiting, every = services.refs().after_last(pair.names), services.settings.anchor
    cadence = AnchorCadence(
        every_checkpoints=every.every_checkpoints, every_minutes=every.every_minutes
    )
    covered = pair.names[: len(pair.names) - len(waiting)]
    last = covered[-1] if covered else None
    refs = services.refs().of(last.checkpoint_id) if last else []
    ids = [f"{last.checkpoint_id.hex()}-{ref.kind}-{ref.number}" for ref in refs if last]
    return Anchors(
        last=last,
        waiting=len(waiting),
        has_more=last is None and pair.total > len(pair.names),
        late_sec=cadence.lateness(now, waiting).seconds,
        last_error=_last_error(services.home),
        verdict=_anchor_verdict(services, last, [ref.anchor_ref for ref in refs]),
        made=_made(place, "anchor", ids, may_read),
    )


def _made(place: ZonePlace, kind: str, ids: Sequence[str], may_read: MayRead) -> Artefact | None:
    runs = seen_by_id(place.folder, kind, ids, may_read)
    return max(runs.values(), key=lambda item: item.made_at, default=None)


def _last_error(home: CheckpointDirectory) -> str | None:
    """The last error of the newest pending anchors."""
    for file in reversed(files(home.tasks)[-_TASKS:]):
        try:
            task = AnchorTask.decode((home.tasks / file).read_bytes())
        except FileNotFoundError:
            continue
        if task.attempts:
            return task.last_error
    return None


def _verdict(services: RecorderServices, pair: CheckpointPair) -> CheckpointVerdict:
    if pair.last is None:
        return CheckpointVerdict(None, "there is none yet")
    try:
        verify_next(pair.last, pair.earlier, _signed_by(services, pair.last))
    except VeenError as error:
        return CheckpointVerdict(False, str(error))
    return CheckpointVerdict(True, "signed by the hub, and consistent with the one before it")


def _signed_by(services: RecorderServices, document: RecorderCheckpoint) -> HubIdentity:
    return identity_of_document(document, read_identity(services.home.root))


def _anchor_verdict(
    services: RecorderServices, name: RecorderCheckpointName | None, refs: Sequence[bytes]
) -> CheckpointVerdict:
    path = services.settings.anchor.path
    if name is None:
        return CheckpointVerdict(None, "none is there")
    if path is not None and path.exists() and path.stat().st_size > _LARGEST_LEDGER:
        return CheckpointVerdict(
            None, "not verified here: run veen recorder checkpoint verify --offline"
        )
    anchor, document = services.anchor(), services.checkpoint_store().get(name)
    ours = [ref for ref in refs if kind_of(ref) == anchor.kind]
    if not ours:
        return CheckpointVerdict(None, "of a kind that is no longer configured")
    try:
        held = [verify_anchors(anchor, document, our) for our in ours]
    except VeenError as error:
        return CheckpointVerdict(False, str(error))
    return CheckpointVerdict(True, f"known to {held[-1].witness}, {held[-1].place}")
