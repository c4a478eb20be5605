"""The offline check of a proof package, with the names of the hub and of the recorder.

It says of every claim whether it held, failed, or is not covered by the package, and of the whole
whether it is proven, failed or unproven.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from recorder.query.digest import RowChain, row_hash, rows_hash
from recorder.query.evidence import evidence_hash, is_sampled, verified
from recorder.query.package import Package, RowHashes
from recorder.query.package_facts import Facts, NotCovered
from recorder.query.run import rows_of
from recorder.query.select import row
from recorder.query.span import end_of
from recorder.query.trust import Trust
from recorder.query.verdict import ORIGINS, Claim, State, Verdict
from veen import canonical_json
from veen.errors import Untrusted, VeenError
from veen.import_event import is_import
from veen.recorder_checkpoint import RecorderCheckpoint

_REPLAY: Final = "a replay of the searched ranges shows it"

AnchorCheck = Callable[[RecorderCheckpoint, bytes], str]
"""What an anchor of one kind proves of a checkpoint, in words; Untrusted when it does not."""


def check_bytes(
    raw: bytes, trust: Trust, anchors: Mapping[str, AnchorCheck] | None = None
) -> Verdict:
    """The verdict on a package; bytes that are no package raise Malformed.

    Whoever has the hub's first public key has its name: ``veen.label.hub_id``. Anchors are
    covered for the kinds that ``anchors`` can check.
    """
    return check(Package.decode(raw), trust, anchors)


def check(
    package: Package, trust: Trust, anchors: Mapping[str, AnchorCheck] | None = None
) -> Verdict:
    facts, known = Facts(package, trust), anchors or {}
    claims = [_judged(name, claim, facts) for name, claim in _CLAIMS.items()]
    if any(map(is_import, package.descriptor.scope)):
        claims.append(_judged(ORIGINS, _origins, facts))
    return Verdict((*claims, _judged("anchors", lambda found: _anchors(found, known), facts)))


def _judged(name: str, claim: Callable[[Facts], str], facts: Facts) -> Claim:
    try:
        return Claim(name, State.HELD, claim(facts))
    except NotCovered as gap:
        return Claim(name, State.NOT_COVERED, str(gap))
    except VeenError as error:
        return Claim(name, State.FAILED, str(error))


def _hub(facts: Facts) -> str:
    return f"{len(facts.hub.hub_keys)} keys lead from the hub's name to its document"


def _hub_newest(facts: Facts) -> str:
    return facts.verify_newest()


def _checkpoint(facts: Facts) -> str:
    made = facts.checkpoint.checkpoint_id.hex(), facts.digest.checkpoint.created_at
    return f"up to checkpoint {made[0]} of {made[1]}, signed by the hub"


def _descriptor(facts: Facts) -> str:
    asked, digest = facts.descriptor, facts.digest
    if (digest.query_id, digest.descriptor_hash) != (asked.query_id, asked.digest()):
        raise Untrusted("the digest is of another query")
    if digest.evidence_policy != asked.evidence:
        raise Untrusted("the digest has another evidence policy than the query")
    return f"the digest answers {asked.query_id}"


def _request_recorded(facts: Facts) -> str:
    facts.verify_recorder(facts.request)
    return f"the hub receipted it at {facts.request.seq} of {facts.request.stream}"


def _request_in_log(facts: Facts) -> str:
    facts.verify_in_log(facts.request, facts.package.request)
    return "it stands below the later checkpoint"


def _result_recorded(facts: Facts) -> str:
    facts.verify_recorder(facts.result)
    return f"the hub receipted it at {facts.result.seq} of {facts.result.stream}"


def _result_in_log(facts: Facts) -> str:
    facts.verify_in_log(facts.result, facts.package.result)
    return "it stands below the later checkpoint"


def _searched(facts: Facts) -> str:
    if tuple(one.stream for one in facts.digest.searched) != facts.descriptor.scope:
        raise Untrusted("what was searched is not the scope")
    wanted = facts.descriptor.filter
    for one in facts.digest.searched:
        end = end_of(one.stream, facts.checkpoint)
        if one.mmr_root != end.mmr_root.hex() or one.to_seq > end.last_seq:
            raise Untrusted(f"what was searched of {one.stream} does not end at the checkpoint")
        # An import stream is in the order of imports, and the time filter goes by the origin's.
        is_whole = is_import(one.stream)
        if one.from_seq > 1 and (wanted.from_ms is None or is_whole):
            raise Untrusted(f"{one.stream} was searched from {one.from_seq} on, without a reason")
        if one.to_seq < end.last_seq and (wanted.to_ms is None or is_whole):
            raise Untrusted(f"{one.stream} was searched up to {one.to_seq}, without a reason")
    return f"{len(facts.digest.searched)} streams, each up to the checkpoint"


def _time_bounds(facts: Facts) -> str:
    _searched(facts)
    for one in facts.digest.searched:
        if (one.from_seq, one.to_seq) != (1, end_of(one.stream, facts.checkpoint).last_seq):
            raise NotCovered(f"the time filter narrowed {one.stream}; {_REPLAY}")
    return "every stream was searched whole"


def _rows_hash(facts: Facts) -> str:
    rows = facts.package.rows
    if isinstance(rows, RowHashes):
        raise NotCovered("the package has the hashes of the rows, not the rows")
    found = rows_hash(rows)
    if (found.rows_hash, found.row_count) != (facts.digest.rows_hash, facts.digest.row_count):
        raise Untrusted("the rows are not those of the digest")
    return f"{found.row_count} rows"


def _rows_chain(facts: Facts) -> str:
    chain = RowChain()
    for one in _row_hashes(facts):
        chain.add(one)
    if (chain.value.hex(), chain.count) != (facts.digest.rows_chain, facts.digest.row_count):
        raise Untrusted("the hashes of the rows are not those of the digest")
    return f"the hashes of {chain.count} rows"


def _sampling(facts: Facts) -> str:
    _searched(facts)  # bounds what is counted below
    root, policy = facts.checkpoint.log_root, facts.descriptor.evidence
    query_id, count = facts.descriptor.query_id, facts.digest.event_count
    if facts.descriptor.aggregate is None and count != facts.digest.row_count:
        raise Untrusted(f"{count} events made {facts.digest.row_count} rows")
    if count > _places(facts):
        raise Untrusted(f"{count} events in {_places(facts)} places")
    due = range(count) if policy.mode != "none" else ()
    picks = [index for index in due if is_sampled(policy, query_id, root, index)]
    if picks != [one.index for one in facts.package.witnesses]:
        raise Untrusted("the witnessed events are not those that were to be drawn")
    return f"{len(picks)} of {count} events were to be witnessed"


def _witnesses(facts: Facts) -> str:
    if not facts.entries:
        raise NotCovered("no event was to be witnessed")
    return f"{len(facts.entries)} events are in the log and match"


def _rows_witnessed(facts: Facts) -> str:
    """Every row follows from witnessed events; rows without a witness are the service's word."""
    if facts.descriptor.evidence.mode == "none":
        raise NotCovered("evidence none: the rows are the service's word")
    if facts.descriptor.aggregate is None:
        told = _selection_witnessed(facts)
    else:
        told = _aggregate_witnessed(facts)
    if not facts.digest.event_count:
        _verify_nothing_searched(facts)
    return told


def _selection_witnessed(facts: Facts) -> str:
    hashes = _row_hashes(facts)
    for one, entry in zip(facts.package.witnesses, facts.entries, strict=True):
        made = row_hash(canonical_json.encode(row(facts.descriptor, entry)))
        if one.index >= len(hashes) or hashes[one.index] != made:
            raise Untrusted(f"row {one.index} is not what {entry.stream} {entry.seq} says")
    shown = len(facts.entries)
    if shown < len(hashes):
        raise NotCovered(
            f"{shown} of {len(hashes)} rows follow from witnessed events; the other "
            f"{len(hashes) - shown} are the service's word"
        )
    return f"each of {len(hashes)} rows follows from an event in the log"


def _aggregate_witnessed(facts: Facts) -> str:
    shown, count = len(facts.entries), facts.digest.event_count
    if shown != count:
        raise NotCovered(
            f"{shown} of {count} events are witnessed, and an aggregate follows only from all of "
            "them: the rows are the service's word"
        )
    rows = rows_of(facts.descriptor, facts.entries)
    made = [row_hash(canonical_json.encode(one)) for one in rows]
    if made != _row_hashes(facts):
        raise Untrusted("the rows are not the aggregate of the witnessed events")
    return f"all rows follow from {shown} events in the log"


def _verify_nothing_searched(facts: Facts) -> None:
    """That no event matched needs no witness only where there was nothing to match."""
    if _places(facts):
        raise NotCovered(f"that no event matched is the service's word; {_REPLAY}")
    _time_bounds(facts)


def _origins(facts: Facts) -> str:
    count = facts.verify_origins()
    return f"{count} imported events were signed for by the hubs of their origins"


def _evidence_hash(facts: Facts) -> str:
    lines = (verified(entry, facts.checkpoint) for entry in facts.entries)
    found = evidence_hash(facts.descriptor, facts.digest.result_id, lines)
    if found != facts.digest.evidence_hash:
        raise Untrusted("the evidence is not that of the digest")
    return "the evidence is that of the digest"


def _complete(facts: Facts) -> str:
    if facts.descriptor.evidence.mode != "full" or len(facts.entries) != _places(facts):
        raise NotCovered(f"whether a row was left out: {_REPLAY}")
    _time_bounds(facts)
    _rows_witnessed(facts)
    return "every place that was searched is witnessed"


def _anchors(facts: Facts, known: Mapping[str, AnchorCheck]) -> str:
    given = facts.package.anchors
    told = [known[one.kind](facts.checkpoint, one.ref) for one in given if one.kind in known]
    if not told:
        raise NotCovered(f"{len(given)} anchors; give what proves them: a ledger, certificates")
    return f"{len(told)} of {len(given)}: {'; '.join(told)}"


def _row_hashes(facts: Facts) -> list[bytes]:
    rows = facts.package.rows
    if isinstance(rows, RowHashes):
        return list(rows.hashes)
    return [row_hash(canonical_json.encode(one)) for one in rows]


def _places(facts: Facts) -> int:
    return sum(one.to_seq - one.from_seq + 1 for one in facts.digest.searched)


_CLAIMS: Final[dict[str, Callable[[Facts], str]]] = {
    "hub": _hub,
    "hub_newest": _hub_newest,
    "checkpoint": _checkpoint,
    "descriptor": _descriptor,
    "request_recorded": _request_recorded,
    "request_in_log": _request_in_log,
    "result_recorded": _result_recorded,
    "result_in_log": _result_in_log,
    "searched": _searched,
    "time_bounds": _time_bounds,
    "rows_hash": _rows_hash,
    "rows_chain": _rows_chain,
    "sampling": _sampling,
    "witnesses": _witnesses,
    "rows_witnessed": _rows_witnessed,
    "evidence_hash": _evidence_hash,
    "complete": _complete,
}
