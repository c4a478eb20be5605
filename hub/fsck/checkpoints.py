"""The checkpoints of one label, their peaks and their index, against its log (spec 4.4.1)."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field

from hub.fsck.check import Check, first_difference
from veen import cbor, checkpoint_index, layout, sign
from veen.checkpoint import Checkpoint
from veen.checkpoint_index import CheckpointRef
from veen.chunk import PeakSnapshot
from veen.digest import ht
from veen.errors import Malformed, Untrusted
from veen.hub_identity import CheckpointBinding, HubKey
from veen.label import EpochLabels
from veen.mmr import Peaks
from veen.profile import DEFAULT_PROFILE

_SIG_BYTES = 66


@dataclass(slots=True)
class Checkpoints:
    check: Check
    label: bytes
    due: set[int]
    """Every stream_seq at which there is, or must be, a checkpoint."""
    labels: EpochLabels | None = None
    epoch: int = 0
    refs: dict[int, CheckpointRef] = field(default_factory=dict)

    def expect_listed(self) -> None:
        """Checkpoints that both the index and the binding manifest name must be there too."""
        with suppress(Malformed):
            listed = checkpoint_index.decode(
                self.check.read(layout.checkpoint_index(self.label)) or b""
            )
            self.due |= {upto for upto in listed if (self.label, upto) in self.check.bound}

    def at(self, upto: int, start_seq: int, peaks: Peaks) -> None:
        """Check what stands at ``upto``, where the label has ``peaks``."""
        self.snapshot(peaks)
        self.refs[upto] = CheckpointRef(
            mmr_root=peaks.root(),
            start_seq=start_seq,
            end_seq=upto,
            peaks_ref=layout.peaks(self.label, upto),
        )
        self._checkpoint(upto, peaks.root())

    def snapshot(self, peaks: Peaks) -> None:
        due = PeakSnapshot.of(self.label, peaks).encode()
        self.check.compare(layout.peaks(self.label, peaks.size), due, "PEAKS")

    def finish(self) -> None:
        """What no entry led to, and the index over all."""
        for upto in sorted(self.due - set(self.refs)):
            self._unreached(upto)
        self._index()

    def _unreached(self, upto: int) -> None:
        """Without the log up to there, a checkpoint says its own root, and only its form tells."""
        name = layout.checkpoint(self.label, upto)
        try:
            found = Checkpoint.decode(self.check.read(name) or b"")
        except Malformed as error:
            self.check.findings.fault(name, 0, upto, str(error), "CHECKPOINT")
            self.check.bindings[self.label, upto] = ()
            return
        self._checkpoint(upto, found.mmr_root)

    def _checkpoint(self, upto: int, root: bytes) -> None:
        name, findings = layout.checkpoint(self.label, upto), self.check.findings
        self.check.bindings[self.label, upto] = self._lines(upto, root, self.check.hub.hub_keys)
        raw = self.check.read(name)
        if raw is None:
            findings.fault(name, 0, upto, "the checkpoint is missing", "MISSING")
            return
        findings.checkpoints += 1
        signed = [_signed_part(one) for one in self._candidates(upto, root)]
        after = 1 + len(signed[0])
        begins = raw[:1] in (b"\x87", b"\x88")
        if not any(raw.startswith(part, 1) for part in signed) or not begins:
            where = max(first_difference(raw[1:after], part) for part in signed)
            at = 1 + where if begins else 0
            findings.fault(name, at, upto, "differs from what the log says", "CHECKPOINT")
            return
        self._signatures(name, raw, after)

    def _signatures(self, name: str, raw: bytes, after: int) -> None:
        findings = self.check.findings
        try:
            found = Checkpoint.decode(raw)
        except Malformed as error:
            findings.fault(name, after, None, str(error), "CHECKPOINT")
            return
        profile = self.labels.profile if self.labels else DEFAULT_PROFILE
        try:
            signer = self.check.hub.verify_checkpoint(found, profile)
        except Untrusted as error:
            findings.fault(name, after, found.upto_seq, str(error), "SIG")
            return
        lines = self._lines(found.upto_seq, found.mmr_root, (signer,))
        self.check.bindings[self.label, found.upto_seq] = lines
        digest = ht("veen/sig", cbor.dump(found.plain()[:6]))
        for place, one in enumerate(found.witness_sigs or ()):
            keys = self.check.hub.hub_keys
            if not any(sign.is_valid(key.hub_pk, one, digest) for key in keys):
                at = after + _SIG_BYTES + 1 + place * _SIG_BYTES
                findings.fault(name, at, found.upto_seq, f"witness {place} is unknown", "SIG")

    def _candidates(self, upto: int, root: bytes) -> list[Checkpoint]:
        """The first checkpoint of an epoch may name the label of the epoch before."""
        before = [self.label]
        if self.labels is not None and self.labels.profile.epoch_sec and self.epoch:
            before.append(self.labels.at(self.epoch - 1))
        return [
            Checkpoint(
                label_prev=prev,
                label_curr=self.label,
                upto_seq=upto,
                mmr_root=root,
                epoch=self.epoch,
            )
            for prev in before
        ]

    def _lines(self, upto: int, root: bytes, keys: tuple[HubKey, ...]) -> tuple[bytes, ...]:
        return tuple(
            CheckpointBinding(
                hub_id=self.check.hub.hub_id,
                key_id=key.key_id,
                label=self.label,
                epoch=self.epoch,
                upto_seq=upto,
                mmr_root=root,
            ).encode()
            for key in keys
        )

    def _index(self) -> None:
        name = layout.checkpoint_index(self.label)
        if not self.due:
            return
        if set(self.refs) >= self.due:
            due = {upto: self.refs[upto] for upto in self.due}
            self.check.compare(name, checkpoint_index.encode(due), "INDEX")
            return
        try:
            found = checkpoint_index.decode(self.check.read(name) or b"")
        except Malformed as error:
            self.check.findings.fault(name, 0, None, str(error), "INDEX")
            return
        for upto in sorted(self.due & set(self.refs)):
            if found.get(upto) != self.refs[upto]:
                self.check.findings.fault(name, 0, upto, "differs from the log", "INDEX")


def _signed_part(one: Checkpoint) -> bytes:
    return cbor.dump(one.plain()[:6])[1:]
