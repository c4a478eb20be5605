"""The recorder: bodies of events, one root over many streams, a signed document of their ends."""

from __future__ import annotations

from typing import Any

from veen_cases.formulas import cbor, ed25519_public, ed25519_sign, h, ht, u64be
from veen_cases.known import Case, own
from veen_cases.wire import CHECKPOINT_FIELDS, signed

HUB_SEED = b"\x77" * 32
CHECKPOINT_KEYS = (
    "ver", "hub_id", "hub_public", "profile_id", "created_at", "log_root", "ends", "names",
    "checkpoints", "hub_sig",
)  # fmt: skip


def record_events() -> list[Case]:
    return [
        _event("an access", {"path": "/a", "size": None, "status": 200}),
        _event("a payload of one number", 7, event_time=253_402_300_799_999),
        _event("text beyond ASCII", ["日本", "é"], subject_id="ü", origin="host-ö"),
    ]


def _event(name: str, payload: Any, **changes: Any) -> Case:
    """A map with the names of the fields as keys, the shorter first, then by their bytes."""
    fields = {
        "origin": "host-1",
        "payload": payload,
        "event_time": 1_700_000_000_123,
        "event_type": "http.request",
        "subject_id": "user-42",
        "principal_id": b"\x42" * 32,
        **changes,
    }
    shown = {**fields, "payload": cbor(payload)}
    return own(name, schema=h(b"record.event.v1"), fields=shown, cbor=cbor(fields))


def _ends(*counts: int) -> list[list[Any]]:
    streams = sorted(h(f"record/{n}".encode()) for n in range(len(counts)))
    return [
        [stream, count, h(stream + u64be(count)) if count else bytes(32)]
        for stream, count in zip(streams, counts, strict=True)
    ]


def _log_root(ends: list[list[Any]]) -> bytes:
    result: bytes = ht("veen/log-root", cbor(ends))
    return result


def log_roots() -> list[Case]:
    lists = {"no stream": _ends(), "one stream": _ends(5), "three, one empty": _ends(1, 0, 700)}
    return [own(name, ends=ends, log_root=_log_root(ends)) for name, ends in lists.items()]


def recorder_checkpoints() -> list[Case]:
    return [
        _document("no streams"),
        _document("an empty stream", ("record/a", 0)),
        _document("three streams", ("record/a", 3), ("export/b", 0), ("bridge/online/log", 9)),
    ]


def _document(name: str, *streams: tuple[str, int]) -> Case:
    hub_public = ed25519_public(HUB_SEED)
    hub_id = ht("veen/hub-id", hub_public)
    rows = sorted((h(text.encode()), text, count) for text, count in streams)
    ends: list[list[Any]] = [
        [stream, n, h(text.encode() + b"root") if n else bytes(32)] for stream, text, n in rows
    ]
    parts = [
        1, hub_id, hub_public, b"\x51" * 32, 1_700_000_321, _log_root(ends), ends,
        [text for _, text, _ in rows],
        [_checkpoint(hub_id, *end) for end in ends if end[1]],
    ]  # fmt: skip
    digest = ht("veen/recorder-checkpoint", cbor(_numbered([*parts, bytes(64)])))
    whole = [*parts, ed25519_sign(HUB_SEED, digest)]
    raw = cbor(_numbered(whole))
    fields = dict(zip(CHECKPOINT_KEYS, whole, strict=True))
    return own(name, seed=HUB_SEED, fields=fields, digest=digest, cbor=raw, checkpoint_id=h(raw))


def _checkpoint(hub_id: bytes, stream: bytes, upto: int, root: bytes) -> list[Any]:
    label = ht("veen/label", ht("veen/routing_key", hub_id) + stream + u64be(0))
    case = signed(CHECKPOINT_FIELDS, [1, label, label, upto, root, 0], HUB_SEED)
    return list(case["fields"].values())


def _numbered(values: list[Any]) -> dict[int, Any]:
    return dict(enumerate(values, 1))
