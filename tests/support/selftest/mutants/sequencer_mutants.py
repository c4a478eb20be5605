"""Sequencers of a hub with one thing broken: by its name, and how."""
# ruff: noqa: PLC0415, ARG005 - a process loads only what is broken in it

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from support.selftest.mutants.breaking import Everything, nothing, swap


def swallowing(detail_enum: str) -> Callable[[], None]:
    """A sequencer that does not mind one kind of disorder."""

    def change() -> None:
        from hub.admission import in_sequence as strict
        from hub.sequencer import committer
        from veen.errors import Rejected

        def lax(*given: Any) -> None:
            try:
                strict(*given)
            except Rejected as refusal:
                if refusal.failure.detail_enum != detail_enum:
                    raise

        swap(committer, "in_sequence", lax)

    return change


def any_profile() -> None:
    from hub import registry

    routed: Any = registry._routed
    swap(
        registry,
        "_routed",
        lambda *given, **named: routed(*given, **named)._replace(profile_id=Everything()),
    )


def capability_optional() -> None:
    from hub.admission import authorise as strict
    from hub.sequencer import committer

    def lax(verified: Any, grant: Any, *more: Any) -> Any:
        if grant is None:
            return None
        return strict(verified, grant, *more)

    swap(committer, "authorise", lax)


def capability_for_anyone() -> None:
    from hub import admission

    swap(admission, "_verify_grant", nothing)


def any_issuer() -> None:
    from hub.admission import Gate
    from hub.sequencer import service

    swap(service, "Gate", lambda required, _: Gate(required, Everything()))


def unsigned_capability() -> None:
    from veen.captoken import CapToken

    swap(CapToken, "verify_chain", nothing)


def ttl_ignored() -> None:
    from veen.captoken import CapToken

    swap(CapToken, "expires_at", lambda self, issued_at: 2**62)


def rate_not_debited() -> None:
    from hub import admission

    swap(admission, "_debit", lambda grant, rate, hub_ts: grant.bucket)


def _receipts(**changes: Callable[[Any], Any]) -> None:
    from veen import receipt

    issue = receipt.issue

    def other(key: Any, **given: Any) -> bytes:
        key = changes.get("key", lambda same: same)(key)
        altered = {
            name: changes.get(name, lambda same: same)(value) for name, value in given.items()
        }
        return issue(key, **altered)

    swap(receipt, "issue", other)


def wrong_root() -> None:
    from veen.digest import h

    _receipts(root=h)


def foreign_receipts() -> None:
    from veen.crypto import SigningKey

    _receipts(key=lambda _: SigningKey(bytes(32)))


def no_label_prev() -> None:
    from hub.storage.log import HubLog

    swap(HubLog, "_label_before", lambda self, label_log: label_log.label)


def early_checkpoint() -> None:
    """The last checkpoint of an epoch misses its last message."""
    from hub.storage.log import HubLog

    checkpoint = HubLog.checkpoint

    def early(self: Any, label_log: Any, upto_seq: int, now: int) -> Any:
        is_rolling = self._route(label_log) is not None and upto_seq > 1
        return checkpoint(self, label_log, upto_seq - 1 if is_rolling else upto_seq, now)

    swap(HubLog, "checkpoint", early)


def no_witness() -> None:
    from hub.storage.identity import HubKeys

    swap(HubKeys, "sign_checkpoint", lambda self, checkpoint, *_: checkpoint.signed(self.current))


def old_key_forgotten() -> None:
    """A rotated hub signs on with the key that it had first."""
    from hub.storage.identity import HubKeys

    strict = HubKeys.__init__

    def first(self: Any, identity: Any, private: Any) -> None:
        strict(self, identity, private)
        self.current = next(iter(private.values()))

    swap(HubKeys, "__init__", first)


def loses_what_it_promised() -> None:
    """The end of each growing chunk is gone after a restart."""
    data = Path(sys.orig_argv[sys.orig_argv.index("--data-dir") + 1])
    for path in (data / "log").glob("*.open"):
        os.truncate(path, max(0, path.stat().st_size - 100))


def rots() -> None:
    """One bit of the log is another one when the hub has stopped."""
    from hub.storage.log import HubLog

    close = HubLog.close

    def rotting(self: Any) -> None:
        close(self)
        path = max((self.datadir.root / "log").glob("*.open"), key=lambda item: item.stat().st_size)
        raw = bytearray(path.read_bytes())
        raw[len(raw) // 2] ^= 1
        path.write_bytes(raw)

    swap(HubLog, "close", rotting)


def fails_to_start() -> None:
    print("veen hub: broken on purpose", file=sys.stderr)
    os._exit(3)


MUTANTS: dict[str, Callable[[], None]] = {
    "prev_ack unchecked": swallowing("PREV_ACK"),
    "gaps allowed": swallowing("CLIENT_SEQ"),
    "epoch unchecked": swallowing("EPOCH"),
    "capability optional": capability_optional,
    "capability for anyone": capability_for_anyone,
    "any issuer": any_issuer,
    "unsigned capability": unsigned_capability,
    "ttl ignored": ttl_ignored,
    "rate not debited": rate_not_debited,
    "wrong root": wrong_root,
    "foreign receipts": foreign_receipts,
    "no label_prev": no_label_prev,
    "early checkpoint": early_checkpoint,
    "no witness": no_witness,
    "old key forgotten": old_key_forgotten,
    "loses what it promised": loses_what_it_promised,
    "rots": rots,
    "does not start": fails_to_start,
    "any profile": any_profile,
}
