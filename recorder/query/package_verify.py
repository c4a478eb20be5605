"""Offline verification of a proof package, with trusted identities of the hub and of the recorder.

Every claim held, failed, or is not covered by the package. A package is proven when every claim in
``REQUIRED`` held, failed when any claim failed, and unproven when nothing failed but evidence that
a proof needs is absent.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final, NamedTuple

from recorder.query.digest import RowChain, row_hash, rows_hash
from recorder.query.evidence import evidence_hash, is_sampled, verified
from recorder.query.execute import end_of, rows_of
from recorder.query.package import NotCovered, Package, PackageFacts, PackageTrust, RowHashes
from recorder.query.select import row
from veen.errors import Untrusted, VeenError
from veen.events import is_import
from veen.recorder_checkpoint import RecorderCheckpoint
from veen.wire import canonical_json

REQUIRED: Final = (
    "hub", "checkpoint", "descriptor", "request_recorded", "result_recorded", "searched",
    "rows_chain", "sampling", "rows_witnessed", "evidence_hash", "hub_newest",
)  # fmt: skip
"""The claims that a proof needs, in the order in which gaps are reported."""

ORIGINS: Final = "origins"
"""The claim, for import streams, that the hubs of the origins signed the imported events."""
_RERUN: Final = "a replay of the searched ranges shows it"


class ClaimState(Enum):
    HELD = "held"
    FAILED = "failed"
    NOT_COVERED = "not covered"


class ClaimOutcome(Enum):
    PROVEN = "proven"
    FAILED = "failed"
    UNPROVEN = "unproven"


class PackageClaim(NamedTuple):
    """A claim; ``detail`` says what it rests on, why it failed, or what would cover it."""

    name: str
    state: ClaimState
    detail: str


@dataclass(frozen=True, slots=True)
class PackageVerdict:
    """The states of all claims, and the outcome."""

    claims: tuple[PackageClaim, ...]

    @property
    def failed(self) -> tuple[PackageClaim, ...]:
        return tuple(claim for claim in self.claims if claim.state is ClaimState.FAILED)

    @property
    def gaps(self) -> tuple[str, ...]:
        """The required claims that did not hold or were not checked."""
        return tuple(name for name in REQUIRED if not self.held(name))

    @property
    def outcome(self) -> ClaimOutcome:
        if self.failed:
            return ClaimOutcome.FAILED
        return ClaimOutcome.UNPROVEN if self.gaps else ClaimOutcome.PROVEN

    @property
    def reason(self) -> str:
        """The reason of the outcome: the first claim that failed or is missing."""
        if self.failed:
            return f"{self.failed[0].name}: {self.failed[0].detail}"
        if self.gaps:
            return f"{self.gaps[0]}: {self._detail(self.gaps[0])}"
        detail = self._detail("rows_witnessed"), self._detail("checkpoint")
        return f"the recorder recorded this result, and {detail[0]}, {detail[1]}"

    @property
    def is_complete(self) -> bool:
        """Whether no matching row is missing, verified with a current identity of the hub."""
        return not self.failed and self.held("complete") and self.held("hub_newest")

    @property
    def completeness(self) -> str:
        """What is proven about rows that are not in the package."""
        if self.failed:
            return "nothing is proven about missing rows"
        if not self.held("hub_newest"):
            return "completeness unproven: the hub's identity may be out of date"
        if self.is_complete:
            return "complete: no matching row is missing up to the checkpoint"
        if self.held("result_recorded") and self.held("rows_chain"):
            return (
                "completeness unproven: every row that the recorder recorded is here, but whether "
                "it left out a matching row only veen query replay shows"
            )
        return "completeness unproven: rows may be missing"

    @property
    def summary(self) -> str:
        """A line with the outcome, its reason, and what is known about missing rows and origins."""
        text = f"{self.outcome.value}: {self.reason}; {self.completeness}"
        gap = next((claim for claim in self.claims if claim.name == ORIGINS), None)
        if gap is not None and gap.state is ClaimState.NOT_COVERED:
            text += f"; origins unproven: {gap.detail}"
        return text

    def held(self, name: str) -> bool:
        return any(claim.name == name and claim.state is ClaimState.HELD for claim in self.claims)

    def document(self) -> dict[str, Any]:
        return {
            "outcome": self.outcome.value,
            "reason": self.reason,
            "complete": self.is_complete,
            "completeness": self.completeness,
            "holds": self.outcome is ClaimOutcome.PROVEN,
            "claims": [
                {"claim": claim.name, "state": claim.state.value, "detail": claim.detail}
                for claim in self.claims
            ],
        }

    def _detail(self, name: str) -> str:
        return next(
            (claim.detail for claim in self.claims if claim.name == name), "was not checked"
        )


AnchorCheck = Callable[[RecorderCheckpoint, bytes], str]
"""Describes what an anchor of one kind proves of a checkpoint; raises Untrusted if nothing."""


def check_bytes(
    raw: bytes, trust: PackageTrust, anchors: Mapping[str, AnchorCheck] | None = None
) -> PackageVerdict:
    """Decode and verify a package; bytes that are not a package raise Malformed.

    The hub's name follows from its first public key: ``veen.label.hub_id``. Anchors are covered for
    the kinds that ``anchors`` can verify.
    """
    return check(Package.decode(raw), trust, anchors)


def check(
    package: Package, trust: PackageTrust, anchors: Mapping[str, AnchorCheck] | None = None
) -> PackageVerdict:
    facts, known = PackageFacts(package, trust), anchors or {}
    claims = [_claim(name, claim, facts) for name, claim in _CLAIMS.items()]
    if any(map(is_import, package.descriptor.scope)):
        claims.append(_claim(ORIGINS, _origins, facts))
    return PackageVerdict((*claims, _claim("anchors", lambda facts: _anchors(facts, known), facts)))


def _claim(name: str, claim: Callable[[PackageFacts], str], facts: PackageFacts) -> PackageClaim:
    try:
        return PackageClaim(name, ClaimState.HELD, claim(facts))
    except NotCovered as gap:
        return PackageClaim(name, ClaimState.NOT_COVERED, str(gap))
    except VeenError as error:
        return PackageClaim(name, ClaimState.FAILED, str(error))


def _hub(facts: PackageFacts) -> str:
    return f"{len(facts.hub.hub_keys)} keys lead from the hub's name to its document"


def _hub_newest(facts: PackageFacts) -> str:
    return facts.verify_newest()


def _checkpoint(facts: PackageFacts) -> str:
    made = facts.checkpoint.checkpoint_id.hex(), facts.digest.checkpoint.created_at
    return f"up to checkpoint {made[0]} of {made[1]}, signed by the hub"


def _descriptor(facts: PackageFacts) -> str:
    asked, digest = facts.descriptor, facts.digest
    if (digest.query_id, digest.descriptor_hash) != (asked.query_id, asked.digest()):
        raise Untrusted("the digest is of another query")
    if digest.evidence_policy != asked.evidence:
        raise Untrusted("the digest has another evidence policy than the query")
    return f"the digest answers {asked.query_id}"


def _request_recorded(facts: PackageFacts) -> str:
    facts.verify_recorder(facts.request)
    return f"the hub receipted it at {facts.request.seq} of {facts.request.stream}"


def _request_in_log(facts: PackageFacts) -> str:
    facts.verify_in_log(facts.request, facts.package.request)
    return "its inclusion proof at the later checkpoint is verified"


def _result_recorded(facts: PackageFacts) -> str:
    facts.verify_recorder(facts.result)
    return f"the hub receipted it at {facts.result.seq} of {facts.result.stream}"


def _result_in_log(facts: PackageFacts) -> str:
    facts.verify_in_log(facts.result, facts.package.result)
    return "its inclusion proof at the later checkpoint is verified"


def _searched(facts: PackageFacts) -> str:
    if tuple(searched.stream for searched in facts.digest.searched) != facts.descriptor.scope:
        raise Untrusted("the searched streams are not those of the scope")
    filter_ = facts.descriptor.filter
    for searched in facts.digest.searched:
        end = end_of(searched.stream, facts.checkpoint)
        if searched.mmr_root != end.mmr_root.hex() or searched.to_seq > end.last_seq:
            raise Untrusted(f"{searched.stream}: the searched range does not end at the checkpoint")
        # An import stream is in the order of imports, and the time filter goes by the origin's.
        is_whole = is_import(searched.stream)
        if searched.from_seq > 1 and (filter_.from_ms is None or is_whole):
            raise Untrusted(
                f"{searched.stream} was searched from {searched.from_seq} on, expected from 1 on"
            )
        if searched.to_seq < end.last_seq and (filter_.to_ms is None or is_whole):
            raise Untrusted(
                f"{searched.stream} was searched up to {searched.to_seq}, expected up to "
                f"{end.last_seq}"
            )
    return f"{len(facts.digest.searched)} streams, each up to the checkpoint"


def _time_bounds(facts: PackageFacts) -> str:
    _searched(facts)
    for searched in facts.digest.searched:
        if (searched.from_seq, searched.to_seq) != (
            1,
            end_of(searched.stream, facts.checkpoint).last_seq,
        ):
            raise NotCovered(f"the time filter narrowed {searched.stream}; {_RERUN}")
    return "every stream was searched whole"


def _rows_hash(facts: PackageFacts) -> str:
    rows = facts.package.rows
    if isinstance(rows, RowHashes):
        raise NotCovered("the package has only the hashes of the rows")
    hash_ = rows_hash(rows)
    if (hash_.rows_hash, hash_.row_count) != (facts.digest.rows_hash, facts.digest.row_count):
        raise Untrusted("the hash of the rows differs from the digest")
    return f"{hash_.row_count} rows"


def _rows_chain(facts: PackageFacts) -> str:
    chain = RowChain()
    for row_hash_ in _row_hashes(facts):
        chain.add(row_hash_)
    if (chain.value.hex(), chain.count) != (facts.digest.rows_chain, facts.digest.row_count):
        raise Untrusted("the hashes of the rows differ from the digest")
    return f"the hashes of {chain.count} rows"


def _sampling(facts: PackageFacts) -> str:
    _searched(facts)  # bounds the count below
    root, policy = facts.checkpoint.log_root, facts.descriptor.evidence
    query_id, count = facts.descriptor.query_id, facts.digest.event_count
    if facts.descriptor.aggregate is None and count != facts.digest.row_count:
        raise Untrusted(f"expected {count} rows for {count} events, got {facts.digest.row_count}")
    if count > _places(facts):
        raise Untrusted(
            f"expected at most {_places(facts)} events in the searched ranges, got {count}"
        )
    indexes = range(count) if policy.mode != "none" else ()
    picks = [index for index in indexes if is_sampled(policy, query_id, root, index)]
    if picks != [witness.index for witness in facts.package.witnesses]:
        raise Untrusted("the witnessed events are not those of the sampling rule")
    return f"{len(picks)} of {count} events were to be witnessed"


def _witnesses(facts: PackageFacts) -> str:
    if not facts.entries:
        raise NotCovered("no event was to be witnessed")
    return f"{len(facts.entries)} events are in the log and match"


def _rows_witnessed(facts: PackageFacts) -> str:
    """Every row follows from witnessed events; other rows are only claimed by the service."""
    if facts.descriptor.evidence.mode == "none":
        raise NotCovered("evidence mode none: the rows are only claimed by the service")
    if facts.descriptor.aggregate is None:
        detail = _selection_witnessed(facts)
    else:
        detail = _aggregate_witnessed(facts)
    if not facts.digest.event_count:
        _verify_nothing_searched(facts)
    return detail


def _selection_witnessed(facts: PackageFacts) -> str:
    hashes = _row_hashes(facts)
    for witness, entry in zip(facts.package.witnesses, facts.entries, strict=True):
        made = row_hash(canonical_json.encode(row(facts.descriptor, entry)))
        if witness.index >= len(hashes) or hashes[witness.index] != made:
            raise Untrusted(f"row {witness.index} differs from {entry.stream} {entry.seq}")
    shown = len(facts.entries)
    if shown < len(hashes):
        raise NotCovered(
            f"{shown} of {len(hashes)} rows follow from witnessed events; the other "
            f"{len(hashes) - shown} are only claimed by the service"
        )
    return f"each of {len(hashes)} rows follows from an event in the log"


def _aggregate_witnessed(facts: PackageFacts) -> str:
    shown, count = len(facts.entries), facts.digest.event_count
    if shown != count:
        raise NotCovered(
            f"{shown} of {count} events are witnessed, and an aggregate follows only from all of "
            "them: the rows are only claimed by the service"
        )
    rows = rows_of(facts.descriptor, facts.entries)
    made = [row_hash(canonical_json.encode(row)) for row in rows]
    if made != _row_hashes(facts):
        raise Untrusted("the rows are not the aggregate of the witnessed events")
    return f"all rows follow from {shown} events in the log"


def _verify_nothing_searched(facts: PackageFacts) -> None:
    """Without a witness, "no event matched" is proven only if nothing was searched."""
    if _places(facts):
        raise NotCovered(f"that no event matched is only claimed by the service; {_RERUN}")
    _time_bounds(facts)


def _origins(facts: PackageFacts) -> str:
    count = facts.verify_origins()
    return f"{count} imported events were signed for by the hubs of their origins"


def _evidence_hash(facts: PackageFacts) -> str:
    lines = (verified(entry, facts.checkpoint) for entry in facts.entries)
    hash_ = evidence_hash(facts.descriptor, facts.digest.result_id, lines)
    if hash_ != facts.digest.evidence_hash:
        raise Untrusted("the hash of the evidence differs from the digest")
    return "the evidence is that of the digest"


def _complete(facts: PackageFacts) -> str:
    if facts.descriptor.evidence.mode != "full" or len(facts.entries) != _places(facts):
        raise NotCovered(f"whether a row was left out is not proven; {_RERUN}")
    _time_bounds(facts)
    _rows_witnessed(facts)
    return "every place that was searched is witnessed"


def _anchors(facts: PackageFacts, known: Mapping[str, AnchorCheck]) -> str:
    anchors = facts.package.anchors
    details = [
        known[anchor.kind](facts.checkpoint, anchor.ref)
        for anchor in anchors
        if anchor.kind in known
    ]
    if not details:
        raise NotCovered(f"{len(anchors)} anchors, not verified; give a ledger or certificates")
    return f"{len(details)} of {len(anchors)}: {'; '.join(details)}"


def _row_hashes(facts: PackageFacts) -> list[bytes]:
    rows = facts.package.rows
    if isinstance(rows, RowHashes):
        return list(rows.hashes)
    return [row_hash(canonical_json.encode(row)) for row in rows]


def _places(facts: PackageFacts) -> int:
    return sum(searched.to_seq - searched.from_seq + 1 for searched in facts.digest.searched)


_CLAIMS: Final[dict[str, Callable[[PackageFacts], str]]] = {
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
