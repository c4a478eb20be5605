"""A recorder and its query service with one thing broken: by its name, and how."""
# ruff: noqa: PLC0415, ARG005 - a process loads only what is broken in it

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from support.selftest.mutants.breaking import nothing, swap


def type_ignored() -> None:
    """Whatever an event is, it goes to the first stream."""
    from recorder.stream_map import RecorderStreamMap

    swap(RecorderStreamMap, "stream_of", lambda self, event_type: self.streams[0])


def admins_produce() -> None:
    from recorder import stream_map

    swap(stream_map, "_verify_producers", nothing)


def any_principal() -> None:
    from veen import events

    strict = events.read_event

    def lax(schema: bytes, body: bytes, client_id: bytes) -> Any:
        principal_id = events.RecordEvent.decode(body).principal_id
        return strict(schema, body, principal_id)

    swap(events, "read_event", lax)


def order_by_place() -> None:
    from recorder.replay.records import Item

    swap(Item, "order", property(lambda self: (self.receipt.hub_ts, self.seq, self.stream)))


def checkpoint_unsigned() -> None:
    from veen.recorder_checkpoint import RecorderCheckpoint

    swap(RecorderCheckpoint, "verify", nothing)


def ledger_unchecked() -> None:
    from recorder.anchor.ledger import AnchorLedgerEntry

    swap(AnchorLedgerEntry, "verify_after", nothing)


def open_range() -> None:
    from recorder.replay import plan

    strict = plan.by_place
    swap(plan, "by_place", lambda stream, first, last, **how: strict(stream, 1, last, **how))


def open_window() -> None:
    from recorder.replay import plan

    strict = plan.by_time
    swap(plan, "by_time", lambda streams, start, end, **how: strict(streams, None, end, **how))


def replay_unproven() -> None:
    from recorder.replay import plan

    swap(plan, "verify_proof", nothing)


def package_believed() -> None:
    from recorder.query import package_verify
    from recorder.query.package_verify import ClaimState, PackageClaim

    swap(
        package_verify, "_claim", lambda name, claim, facts: PackageClaim(name, ClaimState.HELD, "")
    )


def replay_believed() -> None:
    from recorder.service import rerun

    strict = rerun._verdict
    swap(rerun, "_verdict", lambda digest, **facts: strict(digest, detail=""))


def rows_hashed_backwards() -> None:
    from recorder.query import digest

    strict = digest.rows_hash
    swap(digest, "rows_hash", lambda rows: strict(reversed(list(rows))))


def samples_nothing() -> None:
    from recorder.query import evidence

    swap(evidence, "is_sampled", lambda policy, *_: policy.mode == "full")


def wrong_evidence() -> None:
    from recorder.query import evidence

    strict = evidence.verified
    swap(evidence, "verified", lambda *given: strict(*given)._replace(mmr_root="00" * 32))


def counts_twice() -> None:
    from recorder.query import execute
    from recorder.query.select import gather_cells as strict

    swap(execute, "gather_cells", lambda requested, entries: strict(requested, [*entries] * 2))


def witness_believed() -> None:
    from recorder.index import proofs

    swap(proofs, "_verify_witnesses", nothing)


def page_off_by_one() -> None:
    from recorder.service.execute import RowsFile

    strict = RowsFile.page
    swap(RowsFile, "page", lambda self, offset, limit: strict(self, offset + bool(offset), limit))


def any_scope() -> None:
    from recorder.service import requests

    swap(requests, "verify_scope", nothing)


def all_see_all() -> None:
    from recorder.service import requests

    swap(requests, "sees", lambda *_: True)


def no_purpose() -> None:
    from recorder.service import recording

    strict = recording.AccessAttempt.entry
    swap(recording.AccessAttempt, "entry", lambda self: strict(replace(self, purpose=None)))


LOCAL: dict[str, Callable[[], None]] = {
    "type ignored": type_ignored,
    "admins produce": admins_produce,
    "any principal": any_principal,
    "order by place": order_by_place,
    "checkpoint unsigned": checkpoint_unsigned,
    "ledger unchecked": ledger_unchecked,
    "open range": open_range,
    "open window": open_window,
    "replay unproven": replay_unproven,
    "package believed": package_believed,
    "replay believed": replay_believed,
}
SERVICE: dict[str, Callable[[], None]] = {
    "rows hashed backwards": rows_hashed_backwards,
    "samples nothing": samples_nothing,
    "wrong evidence": wrong_evidence,
    "counts twice": counts_twice,
    "witness believed": witness_believed,
}
API: dict[str, Callable[[], None]] = {
    "page off by one": page_off_by_one,
    "any scope": any_scope,
    "all see all": all_see_all,
    "no purpose": no_purpose,
}
