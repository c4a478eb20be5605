"""Which events of a query are verified, and how a task shows each of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from recorder.query.evidence import Verified, Witness, WitnessCheck, is_sampled, verified
from spark_jobs.query_chunk import Terms
from spark_jobs.query_found import Refused, Taken
from spark_jobs.query_nodes import Place, proof
from veen.errors import Malformed, Untrusted


class Proven(NamedTuple):
    question: int
    witness: bytes
    line: Verified


class Numbered(NamedTuple):
    """An event that matches, and its number among those of its question, from 0 on."""

    taken: Taken
    number: int


@dataclass(frozen=True, slots=True)
class ProofTerms:
    """What the proofs of a stream have in common, and where each question's events begin."""

    uppers: Mapping[str, Mapping[Place, bytes]]
    sizes: Mapping[str, int]
    offsets: Sequence[int]

    def numbered(self, taken: Taken, place: int) -> Numbered:
        """``place`` counts the events of all questions, one question after another."""
        return Numbered(taken, place - self.offsets[taken.key.question])


def is_drawn(terms: Terms, one: Numbered) -> bool:
    question = terms.questions[one.taken.key.question]
    root = terms.checkpoint.log_root
    return is_sampled(question.evidence, question.query_id, root, one.number)


def prove(terms: Terms, proofs: ProofTerms, one: Numbered) -> Proven | Refused:
    """The witness of an event, verified as whoever gets it would; or why it does not hold."""
    shown = one.taken.shown
    if shown is None:
        return Refused(f"event {one.number} was drawn and nothing shows it")
    entry = shown.entry
    path = proof(entry.seq, proofs.sizes[entry.stream], shown.path, proofs.uppers[entry.stream])
    try:
        witness = Witness(
            msg=shown.msg, receipt=shown.receipt, body_key=shown.body_key, inclusion=path
        )
        WitnessCheck(terms.hub, terms.checkpoint).event(witness, entry)
    except (Malformed, Untrusted) as error:
        return Refused(str(error))
    return Proven(one.taken.key.question, witness.encode(), verified(entry, terms.checkpoint))
