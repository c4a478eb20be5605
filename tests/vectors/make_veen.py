"""Make veen.json, the golden vectors of the protocol, or check it with --check.

A value known from the public Rust implementation of VEEN stands in veen_cases as a literal beside
the formula that must give it. Nothing here uses the library under test.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from vector_file import write_vectors
from veen_cases import identifiers, mmr, payload, recorder, refusals, sealing, wire
from veen_cases.formulas import hpke_sender
from veen_cases.known import known

TARGET = Path(__file__).with_name("veen.json")
SOURCE = (
    "Made by make_veen.py from the formulas of the specification; values of origin 'reference' "
    "are also those of the public Rust implementation of VEEN or follow from inputs of its tests"
)
LIMITS = {
    "max_msg_bytes": 1048576,
    "max_body_bytes": 1048320,
    "max_hdr_bytes": 16384,
    "max_attachments_per_msg": 1024,
    "max_attachment_bytes": 1048320,
    "MAX_PROOF_PATH": 64,
    "MAX_CAP_CHAIN": 8,
    "ENTRY_HEADER_BYTES": 82,
}
SECTIONS = (
    identifiers.digests, identifiers.schema_ids, identifiers.labels, identifiers.hubs,
    identifiers.streams, identifiers.profiles, identifiers.leaves,
    wire.messages, wire.receipts, wire.checkpoints,
    mmr.mmr_nodes, mmr.mmr_roots, mmr.mmr_growth, mmr.inclusion_proofs, mmr.range_proofs,
    payload.att_roots, payload.payload_headers, payload.capabilities,
    sealing.nonces, sealing.attachment_seals, sealing.sealed_messages,
    refusals.ciphertext_frames, refusals.malformed, refusals.untrusted_capabilities,
    recorder.record_events, recorder.log_roots, recorder.recorder_checkpoints,
)  # fmt: skip


def check_hpke() -> None:
    """RFC 9180 A.2.1: what seals the vectors is itself held to published values."""
    sender = hpke_sender(
        bytes.fromhex("4310ee97d88cc1f088a5576c77ab0cf5c3ac797f3d95139c6c84b5429c59662a"),
        bytes.fromhex("909a9b35d3dc4713a5e72a4da274b55d3d3821a37e5d099e74a647db583a904b"),
        b"Ode on a Grecian Urn",
    )
    known(sender.enc, "1afa08d3dec047a643885163f1180476fa7ddb54c6a8029ea33f95796bf2ac4a")
    known(
        sender.export(b"TestContext", 32),
        "5acb09211139c43b3090489a9da433e8a30ee7188ba8b0a9a1ccf0c229283e53",
    )
    known(
        sender.seal_first(b"Count-0", b"Beauty is truth, truth beauty"),
        """1c5250d8034ec2b784ba2cfd69dbdb8af406cfe3ff938e131f0def8c8b60b4db
        21993c62ce81883d2dd1b51a28""",
    )


def generate() -> str:
    check_hpke()
    document: dict[str, Any] = {"source": SOURCE, "limits": LIMITS, "log": sealing.log()}
    document |= {section.__name__: section() for section in SECTIONS}
    return json.dumps(document, indent=1, ensure_ascii=False, default=bytes.hex) + "\n"


if __name__ == "__main__":
    write_vectors(TARGET, generate())
