"""The checks of the entries of a chunk: frames, pairs, client sequences and MMR roots.

- ``split``: the frames of a chunk; a damaged frame does not hide those behind it (spec 4.8.1).
- ``PairCheck``: every rule that a message and its receipt break by themselves.
  ``veen.invariants.verify_pair`` raises at the first; the rules are the same, and a test compares
  the two. A rule that can only be broken along with another is reported once: a changed message
  has neither its hash nor its signature.
- ``Clients``: the client_seq of each client follows its last (I6-I9).
- ``MmrTracker``: the range of the label, followed from entry to entry (spec 5.1).
- ``MisplacedCheck``: entries out of their place.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from veen import mmr
from veen.audit.context import (
    Context,
    Depth,
    Jump,
    LabelOrigin,
    Loss,
    MisplacedEntry,
    Read,
    Start,
    Task,
)
from veen.audit.report import AuditFault
from veen.errors import Malformed, Untrusted, WrongSize
from veen.invariants import ClientCursor
from veen.limits import ENTRY_HEADER_BYTES, Limits
from veen.log import layout
from veen.log.chunk import PeakSnapshot
from veen.log.entry import FramedEntry, open_entry, read_entry
from veen.mmr import Peaks
from veen.msg import Msg
from veen.payload import check_ciphertext_sizes
from veen.receipt import Receipt
from veen.wire import cbor

Hint = Callable[[int], Peaks | None]
"""The unverified peaks at a size: a signed root must confirm them."""
# Signatures are checked in batches, which is faster by the cache of the processor.
TOGETHER: Final = 256
ORDER = "ORDER"
"""The fault code of an entry that comes after a later entry."""


class Clients:
    """Checks the client_seq and prev_ack of each client.

    The first entry of a client is assumed to follow its last, unless a cursor was given.
    """

    def __init__(self, given: Iterable[tuple[bytes, ClientCursor]]) -> None:
        self._given = dict(given)
        self._losses = 0
        self._lost_upto = 0
        self._seen: Callable[[], int] = lambda: 0
        self.lasts: dict[bytes, ClientCursor] = dict(self._given)
        self.firsts: dict[bytes, ClientCursor] = {}
        self.gaps: list[Jump | Loss] = []
        self.after: dict[bytes, int] = {}

    def place_by(self, seen: Callable[[], int]) -> None:
        """Set the source of the last stream_seq, which gives losses their place."""
        self._seen = seen

    def check(self, msg: Msg, file: str, at: int, seq: int) -> AuditFault | None:
        """The fault of the next message of a client; a gap is stored for later."""
        last = self.lasts.get(msg.client_id)
        if last is None:
            self.firsts[msg.client_id] = ClientCursor(msg.client_seq, msg.prev_ack)
            last = ClientCursor(msg.client_seq - 1, msg.prev_ack)
        if msg.client_seq > last.client_seq:
            self.lasts[msg.client_id] = ClientCursor(msg.client_seq, msg.prev_ack)
        if msg.prev_ack >= seq:
            what = f"prev_ack {msg.prev_ack} is not before this message"
            fault: AuditFault | None = AuditFault(file, at, seq, what, "I6")
        elif msg.client_seq == 0:
            fault = AuditFault(file, at, seq, "expected client_seq from 1, got 0", "I9")
        else:
            fault = self._follows(msg, last, file, at, seq)
        if self._losses and msg.client_seq > last.client_seq:
            self.after[msg.client_id] = self._losses
        return fault

    def salvage(self, msg: Msg) -> None:
        """Take a message of a damaged frame that a valid receipt confirms."""
        self.lasts[msg.client_id] = ClientCursor(msg.client_seq, 0)
        if self._losses:
            self.after[msg.client_id] = self._losses

    def lose(self, count: int) -> None:
        """Note lost entries; a second loss at the same place follows the first."""
        first = max(self._seen(), self._lost_upto) + 1
        self.gaps.append(Loss(first, count))
        self._lost_upto = first + count - 1
        self._losses += 1

    def _follows(
        self, msg: Msg, last: ClientCursor, file: str, at: int, seq: int
    ) -> AuditFault | None:  # fmt: skip
        if msg.client_seq <= last.client_seq:
            return AuditFault(file, at, seq, f"client_seq {msg.client_seq} was used before", "I8")
        gap = msg.client_seq - last.client_seq - 1
        if gap:
            what = f"expected client_seq {last.client_seq + 1}, got {msg.client_seq}"
            is_given = self._given.get(msg.client_id) is last
            since = None if is_given else self.after.get(msg.client_id, 0)
            fault = AuditFault(file, at, seq, what, "I9")
            self.gaps.append(Jump(msg.client_id, last.client_seq + 1, gap, since, fault))
            return None
        if msg.prev_ack < last.prev_ack:
            what = f"prev_ack went back from {last.prev_ack} to {msg.prev_ack}"
            return AuditFault(file, at, seq, what, "I6")
        return None


def no_hint(_size: int) -> Peaks | None:
    """A ``Hint`` that knows nothing."""
    return None


class Suspect(NamedTuple):
    """An entry whose root is wrong if a guessed range before it is confirmed."""

    stream_seq: int
    at: int


def read_snapshot(read: Read, label: bytes, size: int) -> Peaks | None:
    """The peaks at a size from their snapshot, or None."""
    if size == 0:
        return mmr.EMPTY
    try:
        snapshot = PeakSnapshot.decode(read(layout.peaks(label, size)) or b"")
    except Malformed:
        return None
    return snapshot.to_peaks() if (snapshot.label, snapshot.upto_seq) == (label, size) else None


class MmrTracker:
    """Follows the MMR of a label; ``peaks`` is None while a fault leaves it unknown.

    After a fault the range is recovered from entries and snapshots: a guess is extended leaf by
    leaf until a signed root or a snapshot confirms it, and then every root in between was wrong. A
    hint is used only to check a root that could not be checked otherwise, never to recover the
    range, so an audit without hints ends in the same state.
    """

    def __init__(self, task: Task, read: Read, peaks: Peaks | None, hint: Hint) -> None:
        self._task = task
        self._read = read
        self._hint = hint
        self._hinted: Peaks | None = None
        self._guesses: list[Peaks] = []
        self._suspects: list[Suspect] = []
        self._adrift: list[int] = []
        self.peaks = peaks
        self.wrong: list[Suspect] = []

    @property
    def adrift(self) -> list[int]:
        """The entries whose root rests on others that are missing or cannot be read."""
        return sorted([*self._adrift, *(suspect.stream_seq for suspect in self._suspects)])

    def step(self, receipt: Receipt, leaf: bytes | None, at: int) -> bool:
        """Whether the root of a receipt follows from its leaf, or from the message's own."""
        before = self.peaks
        if before is None or before.size != receipt.stream_seq - 1:
            before = self._find_peaks(receipt)
            if before is None:
                self._drift(receipt, leaf, at)
                return False
        after = before.append(receipt.leaf_hash)
        if after.root() == receipt.mmr_root:
            self.peaks = after
            return True
        return self._other(before, receipt, leaf, at)

    def lose(self, leaf: bytes | None) -> None:
        """Continue after an entry whose receipt cannot be read."""
        known = [self.peaks] if self.peaks is not None else self._guesses
        self.miss()
        self._guess([] if leaf is None else [peaks.append(leaf) for peaks in known])

    def miss(self) -> None:
        """Continue after missing entries."""
        self.peaks = None
        self._hinted = None

    def settle(self, size: int) -> None:
        """Recover the range where its snapshot equals a guess."""
        if self.peaks is None and self._guesses:
            self._confirm(self._snapshot(size))

    def _find_peaks(self, receipt: Receipt) -> Peaks | None:
        size = receipt.stream_seq - 1
        for guess in self._guesses:
            if guess.size == size and _leads_to(guess, receipt):
                self._confirm(guess)
                return guess
        snapshot = self._snapshot(size)
        return snapshot if snapshot is not None and _leads_to(snapshot, receipt) else None

    def _confirm(self, guess: Peaks | None) -> None:
        if guess in self._guesses:
            self.peaks = guess
            self.wrong += self._suspects
            self._suspects.clear()
            self._guesses.clear()

    def _guess(self, guesses: list[Peaks]) -> None:
        """Continue from guesses; without any, the roots so far can never be checked."""
        self._guesses = guesses
        if not guesses:
            self._adrift += (suspect.stream_seq for suspect in self._suspects)
            self._suspects.clear()

    def _snapshot(self, size: int) -> Peaks | None:
        is_there = size in self._task.snapshots or size == self._task.segment.start_seq - 1
        return read_snapshot(self._read, self._task.label, size) if is_there else None

    def _other(self, before: Peaks, receipt: Receipt, leaf: bytes | None, at: int) -> bool:
        by_message = before.append(leaf) if leaf and leaf != receipt.leaf_hash else None
        if by_message is not None and by_message.root() == receipt.mmr_root:
            self.peaks = by_message
            return True
        self.miss()
        self.wrong.append(Suspect(receipt.stream_seq, at))
        self._guess([peaks for peaks in (before.append(receipt.leaf_hash), by_message) if peaks])
        return False

    def _drift(self, receipt: Receipt, leaf: bytes | None, at: int) -> None:
        seq = receipt.stream_seq
        self.peaks = None
        self._guess(
            [guess.append(receipt.leaf_hash) for guess in self._guesses if guess.size == seq - 1]
        )
        if self._guesses:
            self._suspects.append(Suspect(seq, at))
        else:
            self._adrift.append(seq)
        if self._hints_otherwise(receipt, leaf):
            self.wrong.append(Suspect(seq, at))

    def _hints_otherwise(self, receipt: Receipt, leaf: bytes | None) -> bool:
        """Whether a hint confirmed by an earlier root leads to another root than this."""
        size, followed = receipt.stream_seq - 1, self._hinted
        is_known = followed is not None and followed.size == size
        before = followed if is_known else self._hint(size)
        if before is None:
            return False
        by_leaves = [before.append(hash_) for hash_ in (receipt.leaf_hash, leaf) if hash_]
        after = next((by_leaf for by_leaf in by_leaves if by_leaf.root() == receipt.mmr_root), None)
        self._hinted = after or (by_leaves[0] if is_known else None)
        return is_known and after is None


def _leads_to(before: Peaks, receipt: Receipt) -> bool:
    return before.append(receipt.leaf_hash).root() == receipt.mmr_root


class SoundFrame(NamedTuple):
    """A frame whose lengths, hash and objects agree."""

    at: int
    framed: FramedEntry


@dataclass(frozen=True, slots=True)
class DamagedFrame:
    """A damaged frame up to the start of the next, and what can be read of it."""

    at: int
    end: int
    why: str
    claimed_seq: int
    """The stream_seq in its header, which is not signed."""
    msg: Msg | None
    receipt: Receipt | None


def split(raw: bytes, label: bytes, limits: Limits) -> Iterator[SoundFrame | DamagedFrame]:
    at = 0
    while at < len(raw):
        try:
            framed = _framed(raw, at, label, limits)
        except Malformed as error:
            damaged = _damaged(raw, at, label, str(error))
            yield damaged
            at = damaged.end
        else:
            yield SoundFrame(at, framed)
            at += framed.header.whole_size


def _framed(raw: bytes, at: int, label: bytes, limits: Limits) -> FramedEntry:
    framed = open_entry(*read_entry(raw, at, limits))
    if framed.header.label != label:
        raise Malformed("the entry has another label")
    return framed


def _damaged(raw: bytes, at: int, label: bytes, why: str) -> DamagedFrame:
    seq = int.from_bytes(raw[at + 34 : at + 42], "big")
    msg_len = int.from_bytes(raw[at + 42 : at + 46], "big")
    receipt_len = int.from_bytes(raw[at + 46 : at + 50], "big")
    start = at + ENTRY_HEADER_BYTES
    end = start + msg_len + receipt_len
    if _ends_there(raw, start + msg_len, end, label):
        cut = msg_len
    else:
        following = raw.find(_begin(label), at + 1)
        end = following if following >= 0 else len(raw)
        cut = _item_end(raw[start:end])
    body = raw[start:end]
    return DamagedFrame(at, end, why, seq, _msg(body[:cut]), _receipt(body[cut:]))


def _begin(label: bytes) -> bytes:
    return b"\x01\x00" + label


def _ends_there(raw: bytes, middle: int, end: int, label: bytes) -> bool:
    """Whether the lengths of a frame are confirmed by what follows it, or by its receipt."""
    if end > len(raw):
        return False
    is_followed = end == len(raw) or raw.startswith(_begin(label), end)
    return is_followed or _receipt(raw[middle:end]) is not None


def _item_end(body: bytes) -> int:
    """The end of the message by its own encoding."""
    try:
        return cbor.skip(body, 0)
    except Malformed:
        return len(body)


def _msg(raw: bytes) -> Msg | None:
    try:
        return Msg.decode(raw)
    except Malformed:
        return None


def _receipt(raw: bytes) -> Receipt | None:
    try:
        return Receipt.decode(raw)
    except Malformed:
        return None


class Broken(NamedTuple):
    """A broken rule: its code and a description."""

    code: str
    what: str


class PendingSignature(NamedTuple):
    """A pair whose signatures are queued; the message is None when it is known to be changed."""

    at: int
    msg: Msg | None
    receipt: Receipt


class PairCheck:
    """Checks pairs of message and receipt by themselves."""

    def __init__(self, context: Context, label: bytes, origin: LabelOrigin | None) -> None:
        self._context = context
        self._label = label
        self._origin = origin
        self._profile_id = origin.labels.profile.profile_id() if origin else b""
        self._is_near: dict[int, bool] = {}
        self._signatures = context.depth is Depth.FULL
        self.signed: list[PendingSignature] = []
        """The queue of pairs whose signatures are to be checked."""

    def broken(self, msg: Msg, receipt: Receipt, leaf: bytes, at: int) -> list[Broken]:
        """The broken rules but for signatures, which are queued; ``leaf`` is the message's."""
        broken = []
        fault = self._message(msg)
        if fault is not None:
            broken.append(fault)
        if self._signatures:
            self.signed.append(PendingSignature(at, msg if fault is None else None, receipt))
        if msg.profile_id not in self._context.profiles:
            broken.append(Broken("I4", f"profile {msg.profile_id.hex()} is not supported"))
        if leaf != receipt.leaf_hash:
            broken.append(Broken("I2", "leaf_hash is not that of the message"))
        origin, hub_ts = self._origin, receipt.hub_ts
        if origin is not None and origin.since > hub_ts:
            origin = None
        if msg.auth_ref is not None:
            fault = self._capability(msg, msg.auth_ref, hub_ts, origin)
            if fault is not None:
                broken.append(fault)
        if origin is not None:
            broken += self._epoch(msg, origin, hub_ts)
        return broken

    def unsigned(self) -> Iterator[tuple[int, int, Broken]]:
        """Offset and stream_seq of each queued signature that is invalid."""
        waiting, self.signed = self.signed, []
        for at, msg, receipt in waiting:
            if msg is not None and not msg.signature_is_valid():
                what = "the message is not signed by its client_id"
                yield at, receipt.stream_seq, Broken("SIG", what)
            try:
                self._context.hub.verify_receipt(receipt)
            except Untrusted as error:
                yield at, receipt.stream_seq, Broken("SIG", str(error))

    def _message(self, msg: Msg) -> Broken | None:
        limits = self._context.limits
        if len(msg.encode()) > limits.max_msg_bytes:
            return Broken("I11", f"the message is too large: {len(msg.encode())} bytes")
        try:
            check_ciphertext_sizes(msg.ciphertext, limits)
        except WrongSize as error:
            return Broken("I11", str(error))
        if not msg.ct_hash_matches():
            return Broken("I1", "ct_hash is not the hash of the ciphertext")
        return None

    def _capability(
        self, msg: Msg, auth_ref: bytes, hub_ts: int, origin: LabelOrigin | None
    ) -> Broken | None:
        capability = self._context.capabilities.get(auth_ref)
        is_known = capability is not None and capability.issued_at <= hub_ts
        if capability is None or not is_known:
            if capability is None and not self._context.control_is_whole:
                return None
            return Broken("I7", "no capability was known under its auth_ref")
        token, issued_at = capability
        if msg.client_id != token.subject_pk:
            return Broken("I7", "the capability was issued to another client")
        if hub_ts > token.expires_at(issued_at):
            return Broken("I7", f"the capability expired at {token.expires_at(issued_at)}")
        if origin is not None and not token.allows_stream(origin.labels.stream_id):
            return Broken("I7", "the capability does not cover this stream")
        return None

    def _epoch(self, msg: Msg, origin: LabelOrigin, hub_ts: int) -> Iterable[Broken]:
        broken = []
        if msg.profile_id != self._profile_id and msg.profile_id in self._context.profiles:
            broken.append(Broken("I4", "the profile is not that of the stream"))
        epoch = origin.labels.profile.epoch(hub_ts)
        if epoch not in self._is_near:
            accepted = origin.labels.accepted(hub_ts, self._context.limits.max_epoch_skew_sec)
            self._is_near[epoch] = self._label in accepted
        if not self._is_near[epoch]:
            broken.append(Broken("I12", "the label does not belong to an epoch at hub_ts"))
        return broken


@dataclass(frozen=True, slots=True)
class MisplacedCheck:
    """Checks the entries out of place, which the walk skips, as pairs by themselves."""

    task: Task
    start: Start
    context: Context
    misplaced: list[MisplacedEntry] = field(default_factory=list)
    faults: list[AuditFault] = field(default_factory=list)

    def look(self, raw: bytes, faults: Iterable[AuditFault]) -> None:
        pairs = PairCheck(self.context, self.task.label, self.start.origin)
        for at in [fault.offset for fault in faults if fault.code == ORDER]:
            framed = open_entry(*read_entry(raw, at, self.context.limits))
            msg, receipt, leaf = framed.msg, framed.receipt, framed.msg.leaf_hash()
            for code, what in pairs.broken(msg, receipt, leaf, at):
                self._fault(at, receipt.stream_seq, what, code)
            if leaf == receipt.leaf_hash and self._is_own(framed):
                self.misplaced.append(
                    MisplacedEntry(receipt.stream_seq, msg.client_id, msg.client_seq)
                )
        for at, seq, (code, what) in pairs.unsigned():
            self._fault(at, seq, what, code)

    def _is_own(self, framed: FramedEntry) -> bool:
        """Whether the hub signed this receipt for this label."""
        try:
            self.context.hub.verify_receipt(framed.receipt)
        except Untrusted:
            return False
        return framed.receipt.label == self.task.label

    def _fault(self, at: int, seq: int, what: str, code: str) -> None:
        self.faults.append(AuditFault(self.task.file, at, seq, what, code))
