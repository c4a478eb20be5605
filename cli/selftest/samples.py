"""Objects of every wire type, made by chance and valid by construction (spec 3.1)."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import fields, replace
from types import ModuleType, NoneType
from typing import Annotated, Any, Final, get_args, get_origin, get_type_hints

from veen import (
    captoken,
    cbor,
    checkpoint,
    envelope,
    hub_identity,
    inclusion,
    msg,
    payload,
    profile,
    proof,
    range_proof,
    rate,
    receipt,
    recorder_checkpoint,
    tooling,
)
from veen.captoken import Allow, CapToken
from veen.checkpoint import Checkpoint
from veen.envelope import BatchResult, ErrorEnvelope
from veen.hub_identity import HubIdentity, HubKey, key_id
from veen.inclusion import InclusionProof
from veen.label import hub_id
from veen.profile import Profile
from veen.proof import Step
from veen.range_proof import RangeProof
from veen.recorder_checkpoint import EMPTY_ROOT, RecorderCheckpoint, StreamEnd
from veen.schema import Size
from veen.stream import stream_id
from veen.tooling import LocateRequest
from veen.wire import WireArray, WireMap, WireObject

_UINTS: Final = (0, 1, 23, 24, 255, 256, 65_535, 65_536, 2**32 - 1, 2**32, 2**64 - 1)
_MODULES: Final = (
    msg, receipt, checkpoint, proof, inclusion, range_proof, captoken, rate, profile, payload,
    hub_identity, envelope, tooling, recorder_checkpoint,
)  # fmt: skip


def _types(module: ModuleType) -> Iterator[type[WireObject]]:
    for one in vars(module).values():
        is_own = isinstance(one, type) and one.__module__ == module.__name__
        if is_own and issubclass(one, WireArray | WireMap):
            yield one


TYPES: Final = tuple(one for module in _MODULES for one in _types(module))


def sample(chance: random.Random, cls: Any) -> Any:
    """A valid object of a wire type; optional fields are there or not."""
    special = _SPECIAL.get(cls, _nothing)(chance)
    values = {
        name: special[name] if name in special else _value(chance, annotation)
        for name, annotation in _annotations(cls).items()
    }
    return cls(**values)


def carries_raw_items(cls: Any) -> bool:
    """Whether some part of it is kept as bytes, to be judged by whoever it is meant for."""
    return any(_has_raw(one) for one in _annotations(cls).values())


def _annotations(cls: Any) -> dict[str, Any]:
    hints = get_type_hints(cls, include_extras=True)
    return {one.name: hints[one.name] for one in fields(cls)}


def _has_raw(annotation: Any) -> bool:
    if get_origin(annotation) is Annotated:
        return getattr(get_args(annotation)[1], "name", "") == "raw item"
    if isinstance(annotation, type) and issubclass(annotation, WireArray | WireMap):
        return carries_raw_items(annotation)
    return any(_has_raw(one) for one in get_args(annotation))


def _value(chance: random.Random, annotation: Any) -> Any:
    origin, arguments = get_origin(annotation), get_args(annotation)
    if NoneType in arguments:
        return None if chance.random() < 0.5 else _value(chance, arguments[0])
    if origin is Annotated:
        mark = arguments[1]
        if isinstance(mark, Size):
            return chance.randbytes(mark.exact)
        return _MARKED[mark.name](chance)
    if origin is tuple:
        return tuple(_value(chance, arguments[0]) for _ in range(chance.randrange(4)))
    return _PLAIN[annotation](chance) if annotation in _PLAIN else sample(chance, annotation)


def _uint(chance: random.Random) -> int:
    return chance.choice((*_UINTS, chance.getrandbits(64), chance.randrange(100)))


def _text(chance: random.Random) -> str:
    return "".join(chance.choice("aZ0 é€𝄞") for _ in range(chance.randrange(9)))


def _detail(chance: random.Random) -> dict[str, Any]:
    values = (_uint(chance), chance.randbytes(5), _text(chance), chance.random() < 0.5)
    return {_text(chance): chance.choice(values) for _ in range(chance.randrange(3))}


_MARKED: Final[dict[str, Callable[[random.Random], Any]]] = {
    "version": lambda _: 1,
    "raw item": lambda chance: cbor.encode([_uint(chance), chance.randbytes(9)]),
    "detail": _detail,
}
_PLAIN: Final[dict[Any, Callable[[random.Random], Any]]] = {
    int: _uint,
    bytes: lambda chance: chance.randbytes(chance.choice((0, 1, 23, 24, 80, 256))),
    str: _text,
    bool: lambda chance: chance.random() < 0.5,
}


def _nothing(_: random.Random) -> dict[str, Any]:
    return {}


def _hashes(chance: random.Random, size: int, least: int = 0) -> tuple[bytes, ...]:
    return tuple(chance.randbytes(size) for _ in range(chance.randint(least, 4)))


def _allow(chance: random.Random) -> dict[str, Any]:
    return {"stream_ids": tuple(sorted(_hashes(chance, 32, least=1)))}


def _checkpoint(chance: random.Random) -> dict[str, Any]:
    return {"witness_sigs": chance.choice((None, _hashes(chance, 64, least=1)))}


def _hub_key(chance: random.Random) -> dict[str, Any]:
    public, start = chance.randbytes(32), chance.getrandbits(40)
    until = chance.choice((None, start, start + chance.getrandbits(20)))
    return {
        "hub_pk": public,
        "key_id": key_id(public),
        "valid_from": start,
        "valid_until": until,
    }


def _hub_identity(chance: random.Random) -> dict[str, Any]:
    keys = [sample(chance, HubKey) for _ in range(chance.randint(1, 3))]
    keys.sort(key=lambda key: key.valid_from)
    return {"hub_keys": tuple(keys), "hub_id": hub_id(keys[0].hub_pk)}


def _inclusion(chance: random.Random) -> dict[str, Any]:
    first, last = sorted(chance.getrandbits(chance.choice((3, 60))) + 1 for _ in range(2))
    return {"stream_seq": first, "size": last}


def _range(chance: random.Random) -> dict[str, Any]:
    first, last, size = sorted(chance.getrandbits(chance.choice((3, 60))) + 1 for _ in range(3))
    return {"from_seq": first, "to_seq": chance.choice((first - 1, last)), "size": size}


def _batch_result(chance: random.Random) -> dict[str, Any]:
    if chance.random() < 0.5:
        return {"receipt": cbor.encode([1]), "error": None}
    return {"receipt": None, "error": sample(chance, ErrorEnvelope)}


def _locate(chance: random.Random) -> dict[str, Any]:
    if chance.random() < 0.5:
        return {"leaf_hash": chance.randbytes(32), "label": None, "hub_ts": None}
    return {"leaf_hash": None, "label": chance.randbytes(32), "hub_ts": _uint(chance)}


def _recorder_checkpoint(chance: random.Random) -> dict[str, Any]:
    names = sorted({f"record/{_text(chance)}" for _ in range(chance.randrange(4))}, key=stream_id)
    ends = tuple(_end(chance, name) for name in names)
    full = [end for end in ends if end.last_seq]
    return {
        "names": tuple(names),
        "ends": ends,
        "log_root": recorder_checkpoint.log_root(ends),
        "checkpoints": tuple(
            replace(sample(chance, Checkpoint), upto_seq=end.last_seq, mmr_root=end.mmr_root)
            for end in full
        ),
    }


def _end(chance: random.Random, name: str) -> StreamEnd:
    last_seq = _uint(chance)
    root = chance.randbytes(32) if last_seq else EMPTY_ROOT
    return StreamEnd(stream_id=stream_id(name), last_seq=last_seq, mmr_root=root)


_SPECIAL: Final[dict[Any, Callable[[random.Random], dict[str, Any]]]] = {
    Allow: _allow,
    BatchResult: _batch_result,
    CapToken: lambda chance: {"sig_chain": _hashes(chance, 64, least=1)},
    Checkpoint: _checkpoint,
    HubIdentity: _hub_identity,
    HubKey: _hub_key,
    InclusionProof: _inclusion,
    LocateRequest: _locate,
    Profile: lambda _: {name: getattr(Profile(), name) for name in Profile.ALGORITHMS},
    RangeProof: _range,
    RecorderCheckpoint: _recorder_checkpoint,
    Step: lambda chance: {"dir": chance.randrange(2)},
}
