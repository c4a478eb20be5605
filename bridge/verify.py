"""Verification of a bundle, from the cheap checks to the dear ones; the first fault ends it
(AGB0 4.5).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial

from bridge.bundle import BundleLimits, Header
from bridge.bundle_reader import Source, Survey, read_batch, survey
from bridge.continuity import Continuity, Held, verify_continuity
from bridge.refusal import Fault, Refused
from bridge.trust import TrustStore
from bridge.verify_events import Findings, Terms, examine
from veen.client.progress import Progress, untold
from veen.crew import crew
from veen.errors import Untrusted
from veen.hub_identity import HubIdentity
from veen.label import label, routing_key
from veen.mmr import Peaks
from veen.recorder_checkpoint import RecorderCheckpoint, StreamEnd

_HASH = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class Verified:
    """A bundle of which everything holds.

    ``told`` events carry metadata. Of ``unopened`` of them the body is not disclosed: only their
    principal and hub time could be checked.
    """

    survey: Survey
    continuity: Continuity
    root: bytes
    """The root of the source's range at the last event: what the next bundle joins on to."""
    told: int
    unopened: int

    @property
    def header(self) -> Header:
        return self.survey.header


def verify_bundle(
    source: Source,
    trust: TrustStore,
    held: Held | None,
    limits: BundleLimits = BundleLimits(),  # noqa: B008 - frozen
    workers: int = 1,
    progress: Progress = untold,
) -> Verified:
    """Everything that can be known of a bundle without the hub it comes from, or Refused.

    With ``workers`` above 1 the events are examined in so many other processes. ``progress`` hears
    of events.
    """
    found = survey(source, limits)
    header = found.header
    if header.bundle_id != found.digest:
        raise Refused(Fault.BUNDLE_ID, "bundle_id is not the hash of the bundle")
    hub = trusted_hub(header.source_hub_id, trust)
    verify_checkpoint(header.export_checkpoint, hub)
    end = _end(found)
    _verify_dates(header, hub)
    terms = Terms(hub, label(routing_key(hub.hub_id), header.export_stream_id, 0))
    with crew(workers if workers > 1 else 0) as beside:
        parts = ((read_batch(source, batch), batch.first_seq) for batch in found.batches)
        examined = beside.run(partial(_examined, terms), parts)
        replay = _verify_range(found, end, examined, progress)
    continuity = verify_continuity(found.proof, held)
    for fault in (replay.unsigned, replay.mistold):
        if fault is not None:
            raise fault
    return Verified(
        survey=found,
        continuity=continuity,
        root=replay.root,
        told=replay.told,
        unopened=replay.unopened,
    )


def trusted_hub(hub_id: bytes, trust: TrustStore) -> HubIdentity:
    hub = trust.hubs.get(hub_id)
    if hub is None:
        why = trust.revoked.get(hub_id)
        what = "is not in the trust store" if why is None else f"is revoked: {why}"
        raise Refused(Fault.HUB, f"hub {hub_id.hex()} {what}")
    return hub


def verify_checkpoint(checkpoint: RecorderCheckpoint, hub: HubIdentity) -> None:
    if checkpoint.hub_id != hub.hub_id:
        raise Refused(Fault.HUB, f"the checkpoint is of hub {checkpoint.hub_id.hex()}")
    if checkpoint.hub_public not in {key.hub_pk for key in hub.hub_keys}:
        told = f"{checkpoint.hub_public.hex()} is not a pinned key of the hub, or is revoked"
        raise Refused(Fault.HUB_KEY, told)
    try:
        checkpoint.verify(hub)
    except Untrusted as error:
        raise Refused(Fault.CHECKPOINT, str(error)) from error


def _verify_dates(header: Header, hub: HubIdentity) -> None:
    """The checkpoint is not older than the events, nor its key retired before them.

    The times are those announced; the events must have them.
    """
    try:
        header.export_checkpoint.verify_entry_time(hub, header.export_stream, header.export_time_to)
    except Untrusted as error:
        raise Refused(Fault.CHECKPOINT, str(error)) from error


def _end(found: Survey) -> StreamEnd:
    """Where the stream ended at the checkpoint; the proof must lead from these events there."""
    header, proof = found.header, found.proof
    end = header.export_checkpoint.end(header.export_stream)
    if end is None or end.last_seq < header.export_seq_to:
        raise Refused(Fault.RANGE, "the checkpoint does not reach the last event")
    due = (header.export_seq_from, header.export_seq_to, end.last_seq)
    if (proof.from_seq, proof.to_seq, proof.size) != due:
        raise Refused(Fault.RANGE, "the proof is of other events or another checkpoint")
    return end


@dataclass(slots=True)
class _Replay:
    """The range as it grows over the events of a bundle."""

    peaks: Peaks
    root: bytes = b""
    times: tuple[int, int] | None = None
    unsigned: Refused | None = None
    mistold: Refused | None = None
    told: int = 0
    unopened: int = 0

    def add(self, found: Findings) -> None:
        """One batch more; its leaves lead to its roots, or the first that does not is named."""
        for at in range(0, len(found.leaves), _HASH):
            self.peaks = self.peaks.append(found.leaves[at : at + _HASH])
            self.root = self.peaks.root()
            if self.root != found.roots[at : at + _HASH]:
                told = "the range has another root than the receipt"
                raise Refused(Fault.ROOT, told, seq=self.peaks.size)
        if found.misplaced is not None:
            raise found.misplaced
        self.times = (self.times or (found.first_ts, 0))[0], found.last_ts
        self.unsigned = self.unsigned or found.unsigned
        self.mistold = self.mistold or found.mistold
        self.told += found.told
        self.unopened += found.unopened


def _examined(terms: Terms, part: tuple[bytes, int]) -> Findings:
    raw, first_seq = part
    return examine(raw, first_seq, terms)


def _verify_range(
    found: Survey, end: StreamEnd, examined: Iterable[Findings], progress: Progress
) -> _Replay:
    """Replay the range over all events, and from the last of them to the checkpoint."""
    header, replay = found.header, _Replay(_before(found))
    for findings in examined:
        replay.add(findings)
        progress(replay.peaks.size + 1 - header.export_seq_from, header.count)
    if replay.times != (header.export_time_from, header.export_time_to):
        raise Refused(Fault.RANGE, f"the events are of hub times {replay.times}, not as announced")
    try:
        found.proof.verify_after(replay.peaks, size=end.last_seq, root=end.mmr_root)
    except Untrusted as error:
        raise Refused(Fault.PROOF, str(error), seq=header.export_seq_to) from error
    return replay


def _before(found: Survey) -> Peaks:
    try:
        return found.proof.before()
    except Untrusted as error:
        raise Refused(Fault.PROOF, str(error), seq=found.proof.from_seq) from error
