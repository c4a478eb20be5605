"""The pairs of one label against the invariants, going on after a pair that breaks one (7)."""

from __future__ import annotations

from hub.control import ControlRecord
from hub.fsck.check import Check
from hub.fsck.frames import Good
from hub.fsck.nodes import NodeCheck
from hub.storage.label_log import Damaged, read_peaks
from hub.storage.logged import Logged
from hub.storage.relearn import Origin
from veen import mmr
from veen.errors import Malformed, Untrusted
from veen.invariants import Before, ClientCursor, Grant, Rules, Violation, verify_pair
from veen.mmr import Peaks
from veen.msg import Msg
from veen.receipt import Receipt


class PairCheck:
    """``peaks`` is None while a fault leaves the state of the range unknown."""

    def __init__(self, check: Check, label: bytes, nodes: NodeCheck) -> None:
        self._check = check
        self._label = label
        self._nodes = nodes
        self._guesses: list[Peaks] = []
        self._lost = 0
        self._moved: dict[bytes, ClientCursor] = {}
        self.label_no = 0
        self.origin: Origin | None = None
        self.peaks: Peaks | None = mmr.EMPTY

    def check_pair(self, name: str, frame: Good) -> None:
        msg, receipt = frame.framed.msg, frame.framed.receipt
        last = self._cursor(msg.client_id)
        grant = self._grant(name, frame.at, msg, receipt)
        peaks = self._before(receipt)
        try:
            if peaks is None:
                self._verify_alone(msg, receipt)
            else:
                client = None if self._is_excused(msg, last) else last
                before = Before(peaks=peaks, client=client, grant=grant)
                verify_pair(msg, receipt, before, self._rules(receipt))
        except Violation as found:
            what, code = found.reason, found.invariant
            self._check.findings.fault(name, frame.at, receipt.stream_seq, what, code)
        self._advance(peaks, receipt, msg)
        if msg.client_seq > last.client_seq:
            self._moved[msg.client_id] = ClientCursor(msg.client_seq, msg.prev_ack)

    def check_control(self, name: str, frame: Good, record: ControlRecord) -> None:
        """A control record is the hub's own, and a capability in it is its issuer's."""
        msg, seq = frame.framed.msg, frame.framed.receipt.stream_seq
        if msg.client_id not in [key.hub_pk for key in self._check.hub.hub_keys]:
            what = "a control record that is not the hub's"
            self._check.findings.fault(name, frame.at, seq, what, "CONTROL")
        token = record.token()
        try:
            if token is not None:
                token.verify_chain()
        except Untrusted as error:
            self._check.findings.fault(name, frame.at, seq, str(error), "I7")

    def is_own(self, receipt: Receipt) -> bool:
        """Whether the hub gave this receipt, for this label."""
        try:
            self._check.hub.verify_receipt(receipt)
        except Untrusted:
            return False
        return receipt.label == self._label

    def salvage(self, receipt: Receipt, msg: Msg | None) -> None:
        """Go on after a frame of which the receipt, at least, is sound."""
        self._advance(self._before(receipt), receipt, msg)
        if msg is not None and msg.leaf_hash() == receipt.leaf_hash:
            last = self._cursor(msg.client_id)
            self._moved[msg.client_id] = ClientCursor(msg.client_seq, last.prev_ack)
        else:
            self._lost += 1

    def lose(self, msg: Msg | None) -> None:
        """Go on after a frame whose receipt cannot be read."""
        known = self.peaks
        self._forget()
        if known is not None and msg is not None:
            self._guesses = [known.append(msg.leaf_hash())]

    def miss(self, count: int) -> None:
        """Go on after entries that are not there, nor their clients."""
        if count:
            guesses = self._guesses
            self._forget()
            self._guesses = guesses
            self._lost += count

    def follow(self, one: Logged) -> None:
        """Take up an entry of a pruned chunk."""
        if self.peaks is None:
            self.peaks = self._snapshot(one.seq - 1)
        if self.peaks is not None:
            self.peaks = self._nodes.follow(self.peaks, one.leaf_hash)
        self._moved[one.client_id] = ClientCursor(one.client_seq, one.prev_ack)

    def settle(self, upto: int) -> None:
        """The end of a chunk: its entries have been learnt, but for those only salvaged."""
        learnt = self._check.relearner.cursors
        self._moved = {
            client: cursor
            for client, cursor in self._moved.items()
            if cursor.client_seq > learnt.client(self.label_no, client).client_seq
        }
        self._nodes.settle()
        if self.peaks is None:
            snapshot = self._snapshot(upto)
            self.peaks = next((one for one in self._guesses if one == snapshot), None)

    def _advance(self, before: Peaks | None, receipt: Receipt, msg: Msg | None) -> None:
        if before is None:
            self._forget()
            return
        after = before.append(receipt.leaf_hash)
        if after.root() == receipt.mmr_root:
            self.peaks = self._nodes.follow(before, receipt.leaf_hash)
            return
        self._forget()
        self._guesses = [after]
        if msg is not None:
            self._guesses.append(before.append(msg.leaf_hash()))

    def _before(self, receipt: Receipt) -> Peaks | None:
        """The peaks before a receipt: those at hand, or a guess that its signed root confirms."""
        size = receipt.stream_seq - 1
        if self.peaks is not None and self.peaks.size == size:
            return self.peaks
        if size == 0:
            return mmr.EMPTY
        for guess in (*self._guesses, self._snapshot(size), self._nodes.hint(size)):
            if guess is None or guess.size != size:
                continue
            if guess.append(receipt.leaf_hash).root() == receipt.mmr_root:
                return guess
        return None

    def _snapshot(self, size: int) -> Peaks | None:
        try:
            return read_peaks(self._check.datadir, self._label, size)
        except (Malformed, Damaged):
            return None

    def _forget(self) -> None:
        self._nodes.settle()
        self.peaks = None
        self._guesses = []

    def _cursor(self, client_id: bytes) -> ClientCursor:
        found = self._moved.get(client_id)
        return found or self._check.relearner.cursors.client(self.label_no, client_id)

    def _is_excused(self, msg: Msg, last: ClientCursor) -> bool:
        """Whether entries that could not be read explain a gap in a client's numbers."""
        gap = msg.client_seq - last.client_seq - 1
        if not 0 < gap <= self._lost:
            return False
        self._lost -= gap
        return True

    def _grant(self, name: str, at: int, msg: Msg, receipt: Receipt) -> Grant | None:
        if msg.auth_ref is None:
            return None
        grant = self._check.relearner.grant(msg.auth_ref, receipt.hub_ts)
        unknown = grant is None and self._check.control_is_whole
        if unknown or (grant is not None and receipt.hub_ts < grant.issued_at):
            what = "no capability was known under its auth_ref"
            self._check.findings.fault(name, at, receipt.stream_seq, what, "I7")
        return grant

    def _verify_alone(self, msg: Msg, receipt: Receipt) -> None:
        """What can be told of a pair without the state before it."""
        seq = receipt.stream_seq
        if not msg.ct_hash_matches():
            raise Violation("I1", seq, "ct_hash is not the hash of the ciphertext")
        if msg.leaf_hash() != receipt.leaf_hash:
            raise Violation("I2", seq, "leaf_hash is not that of the message")
        if not (self.is_own(receipt) and msg.signature_is_valid()):
            raise Violation("SIG", seq, "a signature of the pair does not hold")

    def _rules(self, receipt: Receipt) -> Rules:
        check, origin = self._check, self.origin
        is_known = origin is not None and origin.since <= receipt.hub_ts
        stream = origin.labels if origin is not None and is_known else None
        return Rules(hub=check.hub, profiles=check.profiles, limits=check.limits, stream=stream)
