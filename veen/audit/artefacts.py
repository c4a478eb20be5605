"""What stands beside the entries of a chunk: peaks, checkpoints and summary, against its log."""

from __future__ import annotations

from dataclasses import dataclass, field

from veen import cbor, layout, sign
from veen.audit.context import Context, Origin
from veen.audit.findings import Binding, Read, Task
from veen.audit.report import Fault
from veen.checkpoint import Checkpoint
from veen.checkpoint_index import CheckpointRef
from veen.chunk import ChunkSummary, PeakSnapshot, Tally
from veen.digest import ht
from veen.errors import Malformed, Untrusted
from veen.hub_identity import CheckpointBinding, HubKey
from veen.layout import ChunkName
from veen.mmr import Peaks
from veen.profile import DEFAULT_PROFILE, Profile

_SIG_BYTES = 66


def first_difference(found: bytes, due: bytes) -> int:
    """The first offset at which two byte strings differ; they must."""
    pairs = enumerate(zip(found, due, strict=False))
    return next((at for at, (one, other) in pairs if one != other), min(len(found), len(due)))


def compare(read: Read, name: str, due: bytes, code: str) -> list[Fault]:
    """Where a file first differs from the bytes that the log calls for."""
    found = read(name)
    if found is None:
        return [Fault(name, 0, None, "the file is missing", "MISSING")]
    if found == due:
        return []
    at = first_difference(found, due)
    return [Fault(name, at, None, "differs from what the log says", code)]


@dataclass(slots=True)
class Artefacts:
    task: Task
    read: Read
    context: Context
    origin: Origin | None
    """The stream of the label, if it was known when the label began."""
    before_ts: int
    """The hub_ts of the last entry before the chunk; 0 where it is not known."""
    checkpoints: int = 0
    faults: list[Fault] = field(default_factory=list)
    refs: dict[int, CheckpointRef] = field(default_factory=dict)
    bindings: list[Binding] = field(default_factory=list)

    def at(self, size: int, start_seq: int, peaks: Peaks, hub_ts: int) -> None:
        """Check what stands at ``size``, where the label has ``peaks`` and its entry ``hub_ts``."""
        label = self.task.label
        if size in self.task.due:
            self._snapshot(peaks)
            self.refs[size] = CheckpointRef(
                mmr_root=peaks.root(),
                start_seq=start_seq,
                end_seq=size,
                peaks_ref=layout.peaks(label, size),
            )
            self._checkpoint(size, peaks.root(), hub_ts)
        elif size in self.task.snapshots:
            self._snapshot(peaks)

    def finish(self) -> None:
        """Where the log does not lead, a checkpoint says its own root, and only its form tells."""
        for upto in sorted(self.task.claimed - set(self.refs)):
            name = layout.checkpoint(self.task.label, upto)
            raw = self.read(name)
            try:
                root = Checkpoint.decode(raw).mmr_root if raw is not None else None
            except Malformed as error:
                self._fault(name, 0, upto, str(error), "CHECKPOINT")
                self.bindings.append(Binding(upto, ()))
            else:
                self._alone(name, upto, root)

    def is_vouched(self, peaks: Peaks | None) -> bool:
        """Whether a sound checkpoint has the root of these peaks."""
        if peaks is None or not peaks.size:
            return False
        raw = self.read(layout.checkpoint(self.task.label, peaks.size)) or b""
        try:
            found = Checkpoint.decode(raw)
            self.context.hub.verify_checkpoint(found, self._profile(), not_before=self.before_ts)
        except (Malformed, Untrusted):
            return False
        said = (found.label_curr, found.upto_seq, found.mmr_root)
        return said == (self.task.label, peaks.size, peaks.root())

    def summary(self, name: ChunkName, tally: Tally, peaks: Peaks | None) -> list[Fault]:
        """The summary of a chunk that is whole itself."""
        if peaks is None:
            return self.summary_alone(name, None)
        due = tally.summary(name.label, peaks.root()).encode()
        return compare(self.read, layout.summary(name), due, "SUMMARY")

    def summary_alone(self, name: ChunkName, peaks: Peaks | None) -> list[Fault]:
        """What a summary must say whatever became of the entries of its chunk."""
        file = layout.summary(name)
        raw = self.read(file)
        if raw is None:
            return [Fault(file, 0, None, "the file is missing", "MISSING")]
        try:
            found = ChunkSummary.decode(raw)
        except Malformed as error:
            return [Fault(file, 0, None, str(error), "SUMMARY")]
        root = peaks.root() if peaks else found.mmr_root_end
        said = (found.label, found.start_seq, found.end_seq, found.mmr_root_end)
        if said == (*name, root):
            return []
        return [Fault(file, 0, None, "differs from what the log says", "SUMMARY")]

    def _alone(self, name: str, upto: int, root: bytes | None) -> None:
        if root is None:
            self._fault(name, 0, upto, "the checkpoint is missing", "MISSING")
            self.bindings.append(Binding(upto, ()))
            return
        self._checkpoint(upto, root, self.before_ts)
        snapshot = layout.peaks(self.task.label, upto)
        try:
            found = PeakSnapshot.decode(self.read(snapshot) or b"").to_peaks()
        except Malformed as error:
            self._fault(snapshot, 0, upto, str(error), "PEAKS")
            return
        if found.size != upto or found.root() != root:
            self._fault(snapshot, 0, upto, "differs from the checkpoint", "PEAKS")

    def _snapshot(self, peaks: Peaks) -> None:
        due = PeakSnapshot.of(self.task.label, peaks).encode()
        name = layout.peaks(self.task.label, peaks.size)
        self.faults += compare(self.read, name, due, "PEAKS")

    def _checkpoint(self, upto: int, root: bytes, hub_ts: int) -> None:
        name, place = layout.checkpoint(self.task.label, upto), len(self.bindings)
        self.bindings.append(self._binding(upto, root, self.context.hub.hub_keys))
        raw = self.read(name)
        if raw is None:
            self._fault(name, 0, upto, "the checkpoint is missing", "MISSING")
            return
        self.checkpoints += 1
        signed = [_signed_part(one) for one in self._candidates(upto, root)]
        after = 1 + len(signed[0])
        begins = raw[:1] in (b"\x87", b"\x88")
        if not any(raw.startswith(part, 1) for part in signed) or not begins:
            where = max(first_difference(raw[1:after], part) for part in signed)
            at = 1 + where if begins else 0
            self._fault(name, at, upto, "differs from what the log says", "CHECKPOINT")
            return
        signer = self._signer(name, raw, after, hub_ts)
        if signer is not None:
            self.bindings[place] = self._binding(upto, root, (signer,))

    def _signer(self, name: str, raw: bytes, after: int, hub_ts: int) -> HubKey | None:
        try:
            found = Checkpoint.decode(raw)
        except Malformed as error:
            self._fault(name, after, None, str(error), "CHECKPOINT")
            return None
        upto = found.upto_seq
        try:
            signer = self.context.hub.verify_checkpoint(found, self._profile(), not_before=hub_ts)
        except Untrusted as error:
            self._fault(name, after, upto, str(error), "SIG")
            signer = None
        digest = ht("veen/sig", cbor.dump(found.plain()[:6]))
        for place, one in enumerate(found.witness_sigs or ()):
            keys = self.context.hub.hub_keys
            if not any(sign.is_valid(key.hub_pk, one, digest) for key in keys):
                at = after + _SIG_BYTES + 1 + place * _SIG_BYTES
                self._fault(name, at, upto, f"witness {place} is unknown", "SIG")
        return signer

    def _candidates(self, upto: int, root: bytes) -> list[Checkpoint]:
        """The first checkpoint of an epoch may name the label of the epoch before."""
        before, epoch = [self.task.label], 0
        if self.origin is not None:
            epoch = self.origin.epoch
            if self.origin.labels.profile.epoch_sec and epoch:
                before.append(self.origin.labels.at(epoch - 1))
        return [
            Checkpoint(
                label_prev=prev,
                label_curr=self.task.label,
                upto_seq=upto,
                mmr_root=root,
                epoch=epoch,
            )
            for prev in before
        ]

    def _binding(self, upto: int, root: bytes, keys: tuple[HubKey, ...]) -> Binding:
        lines = (
            CheckpointBinding(
                hub_id=self.context.hub.hub_id,
                key_id=key.key_id,
                label=self.task.label,
                epoch=self.origin.epoch if self.origin else 0,
                upto_seq=upto,
                mmr_root=root,
            ).encode()
            for key in keys
        )
        return Binding(upto, tuple(lines))

    def _profile(self) -> Profile:
        return self.origin.labels.profile if self.origin else DEFAULT_PROFILE

    def _fault(self, name: str, at: int, seq: int | None, what: str, code: str) -> None:
        self.faults.append(Fault(name, at, seq, what, code))


def _signed_part(one: Checkpoint) -> bytes:
    return cbor.dump(one.plain()[:6])[1:]
