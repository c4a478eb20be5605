"""Make overlay.json, the golden vectors of folds and snapshots, or check it with --check.

Nothing here uses the library under test: histories and oracle stand beside this folder.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from vector_file import write_vectors

from support.overlay.overlay_histories import PAID, SCHEMAS, cbor, h, history
from support.overlay.overlay_oracle import FOLDS, folded

TARGET = Path(__file__).with_name("overlay.json")
SOURCE = "Made by make_overlay.py from the specification, without the library"
LABEL, ROOT = h(b"label of the vectors"), h(b"root of the vectors")
SIZES = (0, 1, 25)


def ht(tag: str, data: bytes) -> bytes:
    return h(tag.encode() + b"\x00" + data)


def fold(overlay: str, size: int) -> dict[str, Any]:
    """Messages, the bytes they fold to, the state alone and its hash."""
    messages = history(7, size, SCHEMAS[overlay])
    matching = [m for m in messages if m.schema == SCHEMAS[overlay] and m.says is not None]
    state = cbor(FOLDS[overlay](matching))
    return {
        "overlay": overlay,
        "schema_set": ht("veen/overlay-schemas", SCHEMAS[overlay]),
        "events": [[m.stream_seq, m.hub_ts, m.client_id, m.schema, m.body] for m in messages],
        "folded": folded(overlay, messages),
        "state": state,
        "state_hash": ht(f"veen/state-{overlay}", state),
    }


def summary() -> dict[str, Any]:
    """The second node of height 1 over blocks of 2, of a ledger in which nothing happened."""
    payload = folded("wallet.ledger", [])
    anchor = [1, 8, h(b"receipt of the vectors")]
    fields: dict[int, Any] = dict(
        enumerate(
            [1, "wallet.ledger", ht("veen/overlay-schemas", PAID), LABEL, 2, 5, 8, ROOT, anchor],
            1,
        )
    )
    fields |= {10: payload, 11: bytes(32)}
    digest = ht("veen/overlay-summary", cbor(fields))
    return {"payload": payload, "digest": digest, "summary": cbor(fields | {11: digest})}


def snapshot() -> dict[str, Any]:
    state = cbor(FOLDS["counter.map"]([]))
    body = {
        "state_id": LABEL, "upto_stream_seq": 8, "mmr_root": ROOT,
        "state_hash": ht("veen/state-counter.map", state), "state_class": "counter.map",
    }  # fmt: skip
    return {"schema": h(b"veen/schema:state.checkpoint.v1"), "body": cbor(body)}


def generate() -> str:
    document = {
        "source": SOURCE,
        "label": LABEL,
        "mmr_root": ROOT,
        "folds": [fold(overlay, size) for overlay in SCHEMAS for size in SIZES],
        "summary": summary(),
        "snapshot": snapshot(),
    }
    return json.dumps(document, indent=1, default=bytes.hex) + "\n"


if __name__ == "__main__":
    write_vectors(TARGET, generate())
