"""Checkpoints, peak snapshots, summaries and the binding manifest, against the log (spec 8.4)."""

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
from veen.hub_identity import CheckpointBinding, HubKey, binding_at, binding_line_head
from veen.label import DEFAULT_PROFILE, Profile
from veen.log import layout
from veen.log.chunk import CheckpointRef, ChunkSummary, ChunkTally, PeakSnapshot
from veen.log.layout import ChunkName
from veen.mmr import Peaks
from veen.wire import cbor

_SIG_BYTES = 66
Place = tuple[bytes, int]
"""Label and upto_seq of a checkpoint."""


def first_difference(actual: bytes, expected: bytes) -> int:
    """The first offset at which two different byte strings differ."""
    pairs = enumerate(zip(actual, expected, strict=False))
    return next(
        (at for at, (left, right) in pairs if left != right), min(len(actual), len(expected))
    )


def compare(read: Read, name: str, expected: bytes, code: str) -> list[AuditFault]:
    """A fault where a file first differs from the bytes that follow from the log."""
    actual = read(name)
    if actual is None:
        return [AuditFault(name, 0, None, "the file is missing", "MISSING")]
    if actual == expected:
        return []
    at = first_difference(actual, expected)
    return [AuditFault(name, at, None, "differs from what the log says", code)]


@dataclass(slots=True)
class Artefacts:
    """Checks the artefacts of a chunk while its entries are read."""

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
        """Check the artefacts at ``size``; ``hub_ts`` is that of the entry there."""
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
        """Check the form of checkpoints at sizes for which a fault hides the log's root."""
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
        """Whether a valid checkpoint has the root of these peaks."""
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
        signed = (checkpoint.label_curr, checkpoint.upto_seq, checkpoint.mmr_root)
        return signed == (self.task.label, peaks.size, peaks.root())

    def summary(self, name: ChunkName, tally: ChunkTally, peaks: Peaks | None) -> list[AuditFault]:
        """Compare the summary of a complete chunk."""
        if peaks is None:
            return self.summary_alone(name, None)
        expected = tally.summary(name.label, peaks.root()).encode()
        return compare(self.read, layout.summary(name), expected, "SUMMARY")

    def summary_alone(self, name: ChunkName, peaks: Peaks | None) -> list[AuditFault]:
        """Check what a summary must have even if entries of its chunk are damaged."""
        file = layout.summary(name)
        raw = self.read(file)
        if raw is None:
            return [AuditFault(file, 0, None, "the file is missing", "MISSING")]
        try:
            summary = ChunkSummary.decode(raw)
        except Malformed as error:
            return [AuditFault(file, 0, None, str(error), "SUMMARY")]
        root = peaks.root() if peaks else summary.mmr_root_end
        stated = (summary.label, summary.start_seq, summary.end_seq, summary.mmr_root_end)
        if stated == (*name, root):
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
        expected = PeakSnapshot.of(self.task.label, peaks).encode()
        name = layout.peaks(self.task.label, peaks.size)
        self.faults += compare(self.read, name, expected, "PEAKS")

    def _checkpoint(self, upto: int, root: bytes, hub_ts: int) -> None:
        name, number = layout.checkpoint(self.task.label, upto), len(self.bindings)
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
            self.bindings[number] = self._binding(upto, root, (signer,))

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
        for number, witness_sig in enumerate(checkpoint.witness_sigs or ()):
            keys = self.context.hub.hub_keys
            if not any(signature_is_valid(key.hub_pk, witness_sig, digest) for key in keys):
                at = after + _SIG_BYTES + 1 + number * _SIG_BYTES
                self._fault(name, at, upto, f"witness {number} is unknown", "SIG")
        return signer

    def _candidates(self, upto: int, root: bytes) -> list[Checkpoint]:
        """The possible checkpoints: an epoch's first may name the label of the epoch before."""
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


class BindingLine(NamedTuple):
    at: int
    raw: bytes
    binding: CheckpointBinding | None


def read_lines(raw: bytes, hub_id: bytes) -> Iterator[BindingLine]:
    """The lines of a manifest; a malformed line extends to where the next begins."""
    head = binding_line_head(hub_id)
    at = 0
    while at < len(raw):
        end, binding = binding_at(raw, at)
        if binding is None:
            following = raw.find(head, at + 1)
            end = following if following >= 0 else len(raw)
        yield BindingLine(at, raw[at:end], binding)
        at = end


def check_bindings(
    raw: bytes, hub_id: bytes, expected: Mapping[Place, tuple[bytes, ...]]
) -> list[AuditFault]:
    """Check that every line has its checkpoint, and every checkpoint its line."""
    missing = {place for place, lines in expected.items() if lines}
    bad: list[BindingLine] = []
    for line in read_lines(raw, hub_id):
        binding = line.binding
        place = (binding.label, binding.upto_seq) if binding else None
        lines = expected.get(place) if place else None
        if place is not None and (lines == () or line.raw in (lines or ())):
            missing.discard(place)
        else:
            bad.append(line)
    return [*_unknown_lines(bad, missing, expected), *_unbound(missing, len(raw))]


def _unknown_lines(
    bad: list[BindingLine], missing: set[Place], expected: Mapping[Place, tuple[bytes, ...]]
) -> Iterator[AuditFault]:
    """Faults for lines of no checkpoint, each located by the most similar missing line."""
    for line in bad:
        near = [
            (first_difference(line.raw, candidate), place)
            for place in missing
            for candidate in expected[place]
            if line.raw != candidate
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
