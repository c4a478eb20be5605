"""What stands beside the entries of a chunk: peaks, checkpoints and summary, against its log.

The manifest that binds checkpoints to the hub, against the checkpoints themselves (spec 8.4).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from veen.audit.context import Binding, Context, LabelOrigin, Read, Task
from veen.audit.report import AuditFault
from veen.checkpoint import Checkpoint
from veen.crypto import signature_is_valid
from veen.digest import ht
from veen.errors import Malformed, Untrusted
from veen.hub_identity import CheckpointBinding, HubKey
from veen.label import DEFAULT_PROFILE, Profile
from veen.log import layout
from veen.log.chunk import CheckpointRef, ChunkSummary, ChunkTally, PeakSnapshot
from veen.log.layout import ChunkName
from veen.mmr import Peaks
from veen.wire import cbor

_SIG_BYTES = 66


def first_difference(value: bytes, due: bytes) -> int:
    """The first offset at which two byte strings differ; they must."""
    pairs = enumerate(zip(value, due, strict=False))
    return next((at for at, (item, other) in pairs if item != other), min(len(value), len(due)))


def compare(read: Read, name: str, due: bytes, code: str) -> list[AuditFault]:
    """Where a file first differs from the bytes that the log calls for."""
    result = read(name)
    if result is None:
        return [AuditFault(name, 0, None, "the file is missing", "MISSING")]
    if result == due:
        return []
    at = first_difference(result, due)
    return [AuditFault(name, at, None, "differs from what the log says", code)]


@dataclass(slots=True)
class Artefacts:
    task: Task
    read: Read
    context: Context
    origin: LabelOrigin | None
    """The stream of the label, if it was known when the label began."""
    before_ts: int
    """The hub_ts of the last entry before the chunk; 0 where it is not known."""
    checkpoints: int = 0
    faults: list[AuditFault] = field(default_factory=list)
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
            checkpoint = Checkpoint.decode(raw)
            self.context.hub.verify_checkpoint(
                checkpoint, self._profile(), not_before=self.before_ts
            )
        except (Malformed, Untrusted):
            return False
        said = (checkpoint.label_curr, checkpoint.upto_seq, checkpoint.mmr_root)
        return said == (self.task.label, peaks.size, peaks.root())

    def summary(self, name: ChunkName, tally: ChunkTally, peaks: Peaks | None) -> list[AuditFault]:
        """The summary of a chunk that is whole itself."""
        if peaks is None:
            return self.summary_alone(name, None)
        due = tally.summary(name.label, peaks.root()).encode()
        return compare(self.read, layout.summary(name), due, "SUMMARY")

    def summary_alone(self, name: ChunkName, peaks: Peaks | None) -> list[AuditFault]:
        """What a summary must say whatever became of the entries of its chunk."""
        file = layout.summary(name)
        raw = self.read(file)
        if raw is None:
            return [AuditFault(file, 0, None, "the file is missing", "MISSING")]
        try:
            summary = ChunkSummary.decode(raw)
        except Malformed as error:
            return [AuditFault(file, 0, None, str(error), "SUMMARY")]
        root = peaks.root() if peaks else summary.mmr_root_end
        said = (summary.label, summary.start_seq, summary.end_seq, summary.mmr_root_end)
        if said == (*name, root):
            return []
        return [AuditFault(file, 0, None, "differs from what the log says", "SUMMARY")]

    def _alone(self, name: str, upto: int, root: bytes | None) -> None:
        if root is None:
            self._fault(name, 0, upto, "the checkpoint is missing", "MISSING")
            self.bindings.append(Binding(upto, ()))
            return
        self._checkpoint(upto, root, self.before_ts)
        snapshot = layout.peaks(self.task.label, upto)
        try:
            peaks = PeakSnapshot.decode(self.read(snapshot) or b"").to_peaks()
        except Malformed as error:
            self._fault(snapshot, 0, upto, str(error), "PEAKS")
            return
        if peaks.size != upto or peaks.root() != root:
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
        signed = [_signed_part(candidate) for candidate in self._candidates(upto, root)]
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
            checkpoint = Checkpoint.decode(raw)
        except Malformed as error:
            self._fault(name, after, None, str(error), "CHECKPOINT")
            return None
        upto = checkpoint.upto_seq
        try:
            signer = self.context.hub.verify_checkpoint(
                checkpoint, self._profile(), not_before=hub_ts
            )
        except Untrusted as error:
            self._fault(name, after, upto, str(error), "SIG")
            signer = None
        digest = ht("veen/sig", cbor.dump(checkpoint.plain()[:6]))
        for place, witness_sig in enumerate(checkpoint.witness_sigs or ()):
            keys = self.context.hub.hub_keys
            if not any(signature_is_valid(key.hub_pk, witness_sig, digest) for key in keys):
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
        self.faults.append(AuditFault(name, at, seq, what, code))


def _signed_part(checkpoint: Checkpoint) -> bytes:
    return cbor.dump(checkpoint.plain()[:6])[1:]


Place = tuple[bytes, int]
"""Label and upto_seq of a checkpoint."""


class BindingLine(NamedTuple):
    at: int
    raw: bytes
    binding: CheckpointBinding | None


def read_lines(raw: bytes, hub_id: bytes) -> Iterator[BindingLine]:
    """The lines of a manifest; one that cannot be read goes up to where the next begins."""
    begin = b"\xa7\x01\x01\x02\x58\x20" + hub_id
    at = 0
    while at < len(raw):
        end, result = _line(raw, at)
        if result is None:
            following = raw.find(begin, at + 1)
            end = following if following >= 0 else len(raw)
        yield BindingLine(at, raw[at:end], result)
        at = end


def check_bindings(
    raw: bytes, hub_id: bytes, due: Mapping[Place, tuple[bytes, ...]]
) -> list[AuditFault]:
    """Every line names a checkpoint that is here, and every checkpoint has its line."""
    missing = {place for place, lines in due.items() if lines}
    bad: list[BindingLine] = []
    for line in read_lines(raw, hub_id):
        binding = line.binding
        place = (binding.label, binding.upto_seq) if binding else None
        lines = due.get(place) if place else None
        if place is not None and (lines == () or line.raw in (lines or ())):
            missing.discard(place)
        else:
            bad.append(line)
    return [*_strange(bad, missing, due), *_unbound(missing, len(raw))]


def _strange(
    bad: list[BindingLine], missing: set[Place], due: Mapping[Place, tuple[bytes, ...]]
) -> Iterator[AuditFault]:
    """Each bad line is held against the missing one it is most like."""
    for line in bad:
        near = [
            (first_difference(line.raw, item), place)
            for place in missing
            for item in due[place]
            if line.raw != item
        ]
        where, place = max(near, default=(0, None))
        what = "binds no checkpoint of this hub"
        yield AuditFault(layout.CHECKPOINT_BINDING, line.at + where, None, what, "BINDING")
        if place is not None:
            missing.discard(place)


def _unbound(missing: set[Place], size: int) -> Iterator[AuditFault]:
    for label, upto in sorted(missing):
        what = f"no line for the checkpoint of label {label.hex()} at {upto}"
        yield AuditFault(layout.CHECKPOINT_BINDING, size, upto, what, "BINDING")


def _line(raw: bytes, at: int) -> tuple[int, CheckpointBinding | None]:
    try:
        end = cbor.skip(raw, at)
        return end, CheckpointBinding.decode(raw[at:end])
    except Malformed:
        return len(raw), None
