"""Each step fails when the thing that it guards is broken, and the program says which."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from cli.selftest.suite import SUITES
from support.long_form import LONG
from support.selftest import selftest_run

pytestmark = pytest.mark.e2e

AT_ONCE = 3
TAKEN = "but the hub took it"
TOGETHER = 4


class Broken(NamedTuple):
    """A mutant, the step that must fail by it, and part of what the step says."""

    mutant: str
    suite: str
    step: str
    words: str


class Outcome(NamedTuple):
    company: list[Broken]
    done: Any
    files: list[Path]
    processes: list[Any]


BROKEN = [
    Broken(*item)
    for item in [
        ("does not start", "core", "hub-start", "broken on purpose"),
        ("wrong root", "core", "send-and-receive", "root"),
        ("foreign receipts", "core", "send-and-receive", "not signed"),
        ("own keys for all", "core", "to-another-reader", "not sealed to any of"),
        ("plaintext sent", "core", "hub-is-blind", "in the clear is not in"),
        ("attachments unchecked", "core", "attachments", "but it was taken"),
        ("reads open", "core", "read-access", TAKEN),
        ("expiry told wrong", "core", "capability-use", "expires_at"),
        ("unsigned capability", "core", "capability-forged", TAKEN),
        ("any issuer", "core", "capability-forged", TAKEN),
        ("capability for anyone", "core", "capability-wrong-subject", TAKEN),
        ("capability for anyone", "core", "capability-wrong-stream", TAKEN),
        ("capability optional", "core", "capability-missing", "but it was taken"),
        ("capability optional", "core", "capability-unknown", TAKEN),
        ("ttl ignored", "core", "capability-expired", TAKEN),
        ("rate not debited", "core", "capability-rate", TAKEN),
        ("signature off", "core", "signature", TAKEN),
        ("ct_hash off", "core", "ciphertext-hash", TAKEN),
        ("prev_ack unchecked", "core", "sequence-prev-ack", TAKEN),
        ("gaps allowed", "core", "sequence-gap", TAKEN),
        ("duplicates taken", "core", "duplicate", TAKEN),
        ("duplicates without receipt", "core", "duplicate", "its receipt"),
        ("any profile", "core", "profile", TAKEN),
        ("epoch unchecked", "core", "epoch-window", TAKEN),
        ("prefilter off", "core", "size-prefilter", "SIZE_PREFILTER"),
        ("field sizes off", "core", "size-fields", TAKEN),
        ("version ignored", "core", "version", "VERSION"),
        ("lax CBOR", "core", "malformed-cbor", TAKEN),
        ("hidden entry", "core", "resync-after-loss", "Untrusted"),
        ("hidden entry", "core", "resync-when-behind", "Untrusted"),
        ("state unchecked", "core", "verify-state", "altered state is inconsistent"),
        ("no label_prev", "core", "epoch-roll", "label_prev"),
        ("early checkpoint", "core", "epoch-roll", "upto_seq of the last checkpoint"),
        ("no witness", "core", "key-rotation", "witness"),
        ("old key forgotten", "core", "key-rotation", "receipt"),
        ("loses what it promised", "core", "restart", "does not start"),
        ("no metrics", "core", "health-and-metrics", "metrics that are missing"),
        ("rots", "core", "hub-verify", "expected no fault"),
        ("wrong graft", "props", "mmr-associativity", "by grafting"),
        ("shape unchecked", "props", "mmr-proof-minimality", "but it was taken"),
        ("inclusion unchecked", "props", "inclusion-proofs", "but it was taken"),
        ("range unchecked", "props", "range-proofs", "but it was taken"),
        ("consistency unchecked", "props", "consistency-proofs", "but it was taken"),
        ("text stripped", "props", "cbor-determinism", "decoded"),
        ("overlong taken", "props", "cbor-other-encodings", "overlong"),
        ("end unchecked", "props", "cbor-other-encodings", "a byte too many"),
        ("duplicates taken", "props", "duplicate-rejection", TAKEN),
        ("one nonce", "props", "nonce-uniqueness", "different nonces"),
        ("end unchecked", "fuzz", "decode-receipt", "only encoding"),
        ("careless reader", "fuzz", "decode-msg", "IndexError"),
        ("careless reader", "fuzz", "decode-receipt", "IndexError"),
        ("careless reader", "fuzz", "decode-checkpoint", "IndexError"),
        ("careless reader", "fuzz", "decode-mmr-proof", "IndexError"),
        ("careless reader", "fuzz", "decode-envelopes", "IndexError"),
        ("signature off", "fuzz", "hub-messages", "SIG_INVALID"),
        ("crash on malformed", "fuzz", "hub-messages", "E.UNAVAILABLE"),
        ("die on malformed", "fuzz", "hub-messages", "RemoteProtocolError"),
        ("field sizes off", "fuzz", "hub-signed-messages", "FIELD_SIZE"),
        ("batch as a whole", "fuzz", "hub-batches", "which of the batch were taken"),
        ("crash on bad request", "fuzz", "hub-requests", "expected a refusal, got E.UNAVAILABLE"),
        ("crash on bad query", "fuzz", "hub-queries", "expected a refusal, got E.UNAVAILABLE"),
        ("type ignored", "recorder", "emit-by-type", "an unknown type: expected"),
        ("admins produce", "recorder", "separation", "an admin that produces: expected"),
        ("any principal", "recorder", "principal", "another's principal_id: expected"),
        ("order by place", "recorder", "order", "out of order"),
        ("checkpoint unsigned", "recorder", "checkpoint", "but it was taken"),
        ("ledger unchecked", "recorder", "anchor", "a changed entry: expected Untrusted"),
        ("open range", "recorder", "replay-by-place", "places: expected"),
        ("open window", "recorder", "replay-by-time", "places: expected"),
        ("replay unproven", "recorder", "tampering", "but it was taken"),
        ("rows hashed backwards", "query", "evidence-none", "the digest: expected"),
        ("samples nothing", "query", "evidence-spot", "evidence_hash: expected"),
        ("wrong evidence", "query", "evidence-full", "evidence_hash: expected"),
        ("counts twice", "query", "aggregates", "rows: expected"),
        ("page off by one", "query", "pages", "a page has rows"),
        ("any scope", "query", "scopes", "a forbidden stream: expected"),
        ("all see all", "query", "scopes", "another's result: expected"),
        ("package believed", "query", "proof-package", "with another row fails"),
        ("witness believed", "query", "tampered-index", "evidence that does not hold"),
        ("replay believed", "query", "replays", "a digest of fewer rows: expected"),
        ("no purpose", "query", "audit", "the entry of the query: expected"),
        ("bodies undisclosed", "bridge", "carry", "disclosed: expected"),
        ("ledger blind", "bridge", "presented-again", "BadLedger"),
        ("volumes unchecked", "bridge", "damaged", "a changed volume: expected"),
        ("gaps ignored", "bridge", "behind-a-gap", "the third: expected"),
        ("nothing missing", "bridge", "reconcile", "missing: expected"),
        ("log stays", "bridge", "claims", "events that are traced: expected"),
        ("origins believed", "bridge", "claims-broken", "J1 does not hold"),
        ("successes believed", "bridge", "claims-broken", "J2 does not hold"),
        ("traces believed", "bridge", "claims-broken", "K1 does not hold"),
        ("forks forgotten", "bridge", "claims-broken", "K2 does not hold"),
        ("replay believed", "bridge", "query-replay", "a replay of half of it: expected"),
    ]
]
SOUND = {
    "core": "capability-use", "props": "mmr-associativity", "fuzz": "decode-receipt",
    "recorder": "anchor", "query": "evidence-none", "bridge": "damaged",
}  # fmt: skip
"""Steps that hardly anything above is to break, to show that the rest goes on."""

FATAL = {"does not start", "wrong root", "foreign receipts", "end unchecked"}
"""What no step goes well with."""

ALONE = {
    "hidden entry", "loses what it promised", "rots", "wrong graft", "signature off",
    "crash on malformed", "die on malformed", "careless reader", "type ignored", "order by place",
    "rows hashed backwards", "wrong evidence", "bodies undisclosed", "ledger blind",
    "gaps ignored", *FATAL,
}  # fmt: skip
"""What would change how other mutants are found out."""

CHOSEN = BROKEN if LONG else BROKEN[::5]
"""All of them in the long form."""


def companies(chosen: list[Broken]) -> list[list[Broken]]:
    """Mutants that are run together: of one suite, guarded by different steps, a few at most.

    In the long form each is on its own.
    """
    result: list[list[Broken]] = []
    for mutant in dict.fromkeys((broken.mutant, broken.suite) for broken in chosen):
        mine = [broken for broken in chosen if (broken.mutant, broken.suite) == mutant]
        host = None if LONG else next((item for item in result if _goes_with(mine, item)), None)
        if host is None:
            result.append(mine)
        else:
            host.extend(mine)
    return result


def _goes_with(mine: list[Broken], others: list[Broken]) -> bool:
    mutants = {other.mutant for other in others}
    return (
        not ALONE & {*mutants, mine[0].mutant}
        and len(mutants) < TOGETHER
        and mine[0].suite == others[0].suite
        and not {broken.step for broken in mine} & {other.step for other in others}
    )


@pytest.fixture(scope="module")
def outcomes(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[Broken, Future[Outcome]]]:
    """Every mutant that is asked for, a few runs at a time."""
    items = [item for item in request.session.items if item.path == request.path]
    chosen = [item.callspec.params["broken"] for item in items if hasattr(item, "callspec")]
    folder = tmp_path_factory.mktemp("mutants")
    with ThreadPoolExecutor(AT_ONCE) as pool:
        result: dict[Broken, Future[Outcome]] = {}
        for number, company in enumerate(companies(chosen)):
            run = pool.submit(_run, folder / str(number), company)
            result |= dict.fromkeys(company, run)
        yield result


def _run(folder: Path, company: list[Broken]) -> Outcome:
    suite = company[0].suite
    steps = sorted({SOUND[suite], *(broken.step for broken in company)})
    only = [word for step in steps for word in ("--only", step)]
    mutants = "|".join(dict.fromkeys(broken.mutant for broken in company))
    done = selftest_run.run(folder, suite, "--json", *only, mutant=mutants)
    return Outcome(company, done, list(folder.iterdir()), selftest_run.processes_of(folder))


@pytest.mark.parametrize(
    "broken", CHOSEN, ids=lambda item: f"{item.mutant}: {item.suite}/{item.step}"
)
def test_the_step_that_guards_it_fails(
    broken: Broken, outcomes: dict[Broken, Future[Outcome]]
) -> None:
    company, done, files, processes = outcomes[broken].result()
    assert done.code == 5, done
    failed = done.failed()
    assert broken.words in failed[broken.step]
    assert broken.mutant in FATAL or set(failed) == {item.step for item in company}
    assert broken.step in done.document["detail"]
    assert (files, processes) == ([], [])


def test_every_step_is_shown_to_fail() -> None:
    guarded = {(item.suite, item.step) for item in BROKEN}
    steps = {(suite.name, step.name) for suite in SUITES for step in suite.steps}
    assert steps == guarded
