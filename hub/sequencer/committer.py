"""The sequencer's half of admission: capability, sequence, commit (spec 8.1).

One committer writes a data directory. Messages are committed in groups: a group is written and
synced once, and only then its receipts are given out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from types import MappingProxyType
from typing import Final

from hub.admission import Gate, VerifiedMsg, authorise, in_sequence
from hub.registry import Routed
from hub.storage.index import TokenRow
from hub.storage.label_log import ChunkFull, CommitBatch, LabelLog, StagedEntry
from hub.storage.log import HubLog, delete_retired_seeds
from veen.captoken import CapToken
from veen.checkpoint import Checkpoint
from veen.errors import Failure, Rejected, Untrusted, VeenError
from veen.invariants import ClientCursor
from veen.limits import Limits
from veen.log.entry import AUTHORIZE, STREAM, ControlRecord, StreamRecord, control_label
from veen.recorder_checkpoint import RecorderCheckpoint
from veen.system.durable import NoSpace

_ADVANCED_PER_TICK: Final = 64


class Unavailable(VeenError):
    """The hub cannot accept the message now; nothing of it was stored."""


class NotFound(VeenError):
    """No such label, or nothing at that stream_seq."""


Outcome = bytes | Rejected | Unavailable
"""The outcome of a message: the bytes of its receipt, or the reason why there is none."""


class _Group:
    """Messages committed together; those in a flushed batch are settled."""

    def __init__(self, log: HubLog, size: int) -> None:
        self._log = log
        self._size = size
        self._settled = 0
        self.decided: list[StagedEntry | Rejected] = []
        self.batch = CommitBatch(log.keys.current, log.limits)

    def flush(self) -> None:
        if self.batch.changes:
            self._log.flush(self.batch)
        self._settled = len(self.decided)
        self.batch = CommitBatch(self._log.keys.current, self._log.limits)

    def outcomes(self) -> list[Outcome]:
        """Receipts for what is settled, Unavailable for the rest."""
        settled: list[Outcome] = [
            decided.receipt if isinstance(decided, StagedEntry) else decided
            for decided in self.decided[: self._settled]
        ]
        left = self._size - self._settled
        return settled + [
            Unavailable("the disk of the hub is full; try again later") for _ in range(left)
        ]


class Committer:
    """Admits and commits messages; ``bounds`` has the size limits of streams, by stream_id."""

    def __init__(
        self, log: HubLog, gate: Gate, bounds: Mapping[bytes, int] = MappingProxyType({})
    ) -> None:
        self.log = log
        self._gate = gate
        self._bounds = bounds

    def commit(self, messages: Sequence[VerifiedMsg], clock: int) -> list[Outcome]:
        """Commit a group in order. Receipts are returned only for what is on disk."""
        now = self.now(clock)
        group = _Group(self.log, len(messages))
        with suppress(NoSpace):
            for verified in messages:
                try:
                    group.decided.append(self._stage(group, verified, now))
                except Rejected as refusal:
                    group.decided.append(refusal)
            group.flush()
        return group.outcomes()

    def authorize(self, token: CapToken, clock: int) -> TokenRow:
        """Log a capability in the control log. Idempotent."""
        known = self.log.index.token(token.auth_ref())
        if known is not None:
            return known
        if token.issuer_pk not in self._gate.issuers:
            issuer = token.issuer_pk.hex()
            raise Rejected(Failure.CAP_INVALID, f"issuer {issuer} is not trusted by this hub")
        try:
            token.verify_chain()
        except Untrusted as error:
            raise Rejected(Failure.CAP_INVALID, str(error)) from error
        record = ControlRecord(kind=AUTHORIZE, body=token.encode())
        _verify_limits(token, record, self.log.limits)
        staged = self._log_control(record, clock)
        return TokenRow(token.auth_ref(), token.encode(), staged.hub_ts, staged.seq)

    def register(self, stream: StreamRecord, clock: int) -> None:
        """Log a stream with its name in the control log. Idempotent."""
        known = self.log.registry.stream(stream.stream_id())
        if known is None or known.is_nameless():
            self._log_control(ControlRecord(kind=STREAM, body=stream.encode()), clock)
        elif known != stream:
            raise Untrusted(f"{stream.name} is registered with another profile")

    def checkpoint(self, label: bytes, upto_seq: int, clock: int) -> Checkpoint:
        label_log = self.log.label(label)
        if label_log is None or not 1 <= upto_seq <= label_log.head_seq:
            raise NotFound(f"label {label.hex()} has no stream_seq {upto_seq}")
        return self.log.checkpoint(label_log, upto_seq, self.now(clock))

    def recorder_checkpoint(
        self, profile_id: bytes, clock: int, *, force: bool
    ) -> RecorderCheckpoint:
        """The last document if no stream has moved, or a new one over all published checkpoints."""
        return self.log.recorder.compose(profile_id, self.now(clock), force=force)

    def tick(self, clock: int) -> None:
        """Do what depends on time alone: labels to come, ended epochs, retired seeds."""
        self.log.registry.advance(self.now(clock), _ADVANCED_PER_TICK)
        self.log.close_stale_epochs(self.now(clock))
        delete_retired_seeds(self.log, self.now(clock))

    def now(self, clock: int) -> int:
        """Hub time: the clock, but monotonic, and never before the signing key is valid."""
        return max(clock, self.log.last_ts, self.log.keys.valid_from)

    def _stage(self, group: _Group, verified: VerifiedMsg, now: int) -> StagedEntry:
        batch = group.batch
        routed = self.log.registry.route(verified.label, now)
        if routed is not None:
            self._verify_size(verified, routed)
        if routed is not None and routed.profile_id != verified.profile_id:
            raise Rejected(Failure.PROFILE, f"{routed.stream.name} has another profile")
        grant = self.log.grant(verified.auth_ref, batch.buckets) if verified.auth_ref else None
        bucket = authorise(verified, grant, routed, self._gate, now)
        label_log = self.log.label(verified.label)
        closed = None if label_log else self.log.index.label(verified.label)
        known = label_log or closed
        client = (known.label_no if known else 0, verified.client_id)
        cursor = batch.clients.get(client) or self.log.cursors.row(*client).cursor
        head_seq = batch.head_seq(label_log) if label_log else closed.head_seq if closed else 0
        in_sequence(
            verified, cursor, head_seq, routed, lambda seq: self._seq_of(batch, verified, seq)
        )
        if closed is not None:
            raise Rejected(Failure.EPOCH, f"epoch {closed.epoch} of this label is closed")
        if label_log is None:
            label_log = self.log.ensure_label(verified.label, now)
        staged = self._append(group, label_log, verified, now)
        client = (label_log.label_no, verified.client_id)
        group.batch.clients[client] = ClientCursor(verified.client_seq, verified.prev_ack)
        if verified.auth_ref is not None and bucket is not None:
            group.batch.buckets[verified.auth_ref] = bucket
        return staged

    def _verify_size(self, verified: VerifiedMsg, routed: Routed) -> None:
        max_bytes = self._bounds.get(routed.stream_id)
        if max_bytes is not None and len(verified.raw) > max_bytes:
            raise Rejected(
                Failure.FIELD_SIZE,
                f"message too large: {routed.stream.name} takes at most {max_bytes} bytes, got "
                f"{len(verified.raw)}",
            )

    def _append(
        self, group: _Group, label_log: LabelLog, verified: VerifiedMsg, now: int
    ) -> StagedEntry:
        try:
            return group.batch.append(label_log, verified, now)
        except ChunkFull:
            group.flush()
            self.log.seal(label_log, now)
            return group.batch.append(label_log, verified, now)

    def _seq_of(self, batch: CommitBatch, verified: VerifiedMsg, client_seq: int) -> int | None:
        staged_seq = batch.seq_of(verified.label, verified.client_id, client_seq)
        known = self.log.label(verified.label) or self.log.index.label(verified.label)
        if staged_seq is not None or known is None:
            return staged_seq
        return self.log.cursors.seq_of(known.label_no, verified.client_id, client_seq)

    def _log_control(self, record: ControlRecord, clock: int) -> StagedEntry:
        now, key = self.now(clock), self.log.keys.current
        label_log = self.log.ensure_label(control_label(self.log.keys.hub_id), now)
        cursor = self.log.cursors.row(label_log.label_no, key.public).cursor
        msg = record.msg(self.log.keys.hub_id, key, cursor.client_seq + 1, label_log.head_seq)
        group = _Group(self.log, 1)
        staged = self._append(group, label_log, VerifiedMsg.of(msg), now)
        client = (label_log.label_no, key.public)
        group.batch.clients[client] = ClientCursor(msg.client_seq, msg.prev_ack)
        group.batch.controls.append((record, staged))
        group.flush()
        return staged


def _verify_limits(token: CapToken, record: ControlRecord, limits: Limits) -> None:
    """Raise for a capability whose rate or size is above the limits of this hub."""
    rate = token.allow.rate
    if rate is not None and (
        rate.per_sec > limits.max_cap_rate_per_sec or rate.burst > limits.max_cap_rate_burst
    ):
        raise Rejected(
            Failure.CAP_INVALID, "the rate of the capability is above what this hub allows"
        )
    if len(record.encode()) > limits.max_hdr_bytes:
        raise Rejected(
            Failure.CAP_INVALID,
            f"the capability is too large for the log: {len(record.body)} bytes",
        )
