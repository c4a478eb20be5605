"""Test data and the runner: random wire objects, a naive Merkle range, invalid encodings, steps.

Objects of every wire type are valid by construction (spec 3.1). The range is computed as the
specification defines it (5.1), as a second implementation.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from types import ModuleType, NoneType
from typing import (
    Annotated,
    Any,
    Final,
    Generic,
    NamedTuple,
    TypeVar,
    get_args,
    get_origin,
    get_type_hints,
)

from veen import (
    captoken,
    checkpoint,
    hub_identity,
    label,
    msg,
    payload,
    proofs,
    receipt,
    recorder_checkpoint,
)
from veen.captoken import Allow, CapToken
from veen.checkpoint import Checkpoint
from veen.digest import ht
from veen.errors import VeenError
from veen.hub_identity import HubIdentity, HubKey, key_id
from veen.label import Profile, hub_id, stream_id
from veen.proofs import InclusionProof, ProofStep, RangeProof
from veen.recorder_checkpoint import EMPTY_ROOT, RecorderCheckpoint, StreamEnd
from veen.wire import api, cbor
from veen.wire.api import BatchResult, ErrorEnvelope, LocateRequest
from veen.wire.objects import WireArray, WireMap, WireObject
from veen.wire.schema import Size

_SIZES: Final = {24: 1, 25: 2, 26: 4, 27: 8}
_BREAK: Final = b"\xff"
_UINTS: Final = (0, 1, 23, 24, 255, 256, 65_535, 65_536, 2**32 - 1, 2**32, 2**64 - 1)
_MODULES: Final = (
    msg, receipt, checkpoint, proofs, proofs, proofs, captoken, captoken, label, payload,
    hub_identity, api, api, recorder_checkpoint,
)  # fmt: skip
W = TypeVar("W")


def naive_subtree(leaves: Sequence[bytes]) -> bytes:
    """The node over 2^h leaves."""
    if len(leaves) == 1:
        return leaves[0]
    half = len(leaves) // 2
    return ht("veen/mmr-node", naive_subtree(leaves[:half]), naive_subtree(leaves[half:]))


def naive_peaks(leaves: Sequence[bytes]) -> list[bytes]:
    """The peaks by increasing height; the largest trees cover the first leaves."""
    peaks: list[bytes] = []
    start = 0
    for height in reversed(range(len(leaves).bit_length())):
        if len(leaves) >> height & 1:
            end = start + (1 << height)
            peaks.insert(0, naive_subtree(leaves[start:end]))
            start = end
    return peaks


def naive_root(leaves: Sequence[bytes]) -> bytes:
    peaks = naive_peaks(leaves)
    return peaks[0] if len(peaks) == 1 else ht("veen/mmr-root", *peaks)


class NaiveTree:
    """Merkle nodes, recomputed from the leaves at each request."""

    def __init__(self, leaves: Sequence[bytes]) -> None:
        self.leaves = leaves

    def node(self, height: int, index: int) -> bytes:
        return naive_subtree(self.leaves[index << height : (index + 1) << height])

    def root_at(self, size: int) -> bytes:
        return naive_root(self.leaves[:size])


_UINT, _BSTR, _TSTR, _ARRAY, _MAP, _SIMPLE = 0, 2, 3, 4, 5, 7
_STRINGS: Final = (_BSTR, _TSTR)


class CborHead(NamedTuple):
    """A CBOR head; ``end`` is the end of the whole item, ``after`` the end of the head."""

    at: int
    after: int
    end: int
    major: int
    argument: int


def heads(raw: bytes) -> list[CborHead]:
    """Every head of a well-formed item, the outermost first."""
    heads_: list[CborHead] = []
    _walk(raw, 0, heads_)
    return sorted(heads_)


def _walk(raw: bytes, at: int, heads: list[CborHead]) -> int:
    major, info = raw[at] >> 5, raw[at] & 0x1F
    width = _SIZES.get(info, 0)
    after = at + 1 + width
    argument = int.from_bytes(raw[at + 1 : after], "big") if width else info
    end = after + (argument if major in _STRINGS else 0)
    for _ in range(argument * {_ARRAY: 1, _MAP: 2}.get(major, 0)):
        end = _walk(raw, end, heads)
    heads.append(CborHead(at, after, end, major, argument))
    return end


def variants(raw: bytes, only_outermost: bool) -> Iterator[tuple[str, bytes]]:
    """Invalid variants of an encoding, each with its fault."""
    yield "a byte too many", raw + b"\x00"
    yield "an item too many", raw + b"\xf6"
    yield "nothing", b""
    for head in heads(raw)[:1] if only_outermost else heads(raw):
        yield from _overlong(raw, head)
        yield from _indefinite(raw, head)
    yield from _disordered(raw)


def _overlong(raw: bytes, cbor_head: CborHead) -> Iterator[tuple[str, bytes]]:
    if cbor_head.major == _SIMPLE:
        return
    for info, width in _SIZES.items():
        if width > cbor_head.after - cbor_head.at - 1:
            head = bytes([cbor_head.major << 5 | info]) + cbor_head.argument.to_bytes(width, "big")
            yield (
                f"an overlong head at {cbor_head.at}",
                raw[: cbor_head.at] + head + raw[cbor_head.after :],
            )


def _indefinite(raw: bytes, head: CborHead) -> Iterator[tuple[str, bytes]]:
    if head.major in (_ARRAY, _MAP, *_STRINGS):
        start = head.at if head.major in _STRINGS else head.after
        opened = bytes([head.major << 5 | 0x1F]) + raw[start : head.end] + _BREAK
        yield f"indefinite length at {head.at}", raw[: head.at] + opened + raw[head.end :]


def _disordered(raw: bytes) -> Iterator[tuple[str, bytes]]:
    """A map with its first two entries swapped, and with a duplicate entry."""
    top = heads(raw)[0]
    if top.major != _MAP or top.argument < 2:
        return
    ends = {head.at: head.end for head in reversed(heads(raw))}
    second = ends[ends[top.after]]
    third = ends[ends[second]]
    first, other = raw[top.after : second], raw[second:third]
    yield "keys out of order", raw[: top.after] + other + first + raw[third:]
    yield "a key twice", raw[: top.after] + first + first + raw[third:]


def _types(module: ModuleType) -> Iterator[type[WireObject]]:
    for var in vars(module).values():
        is_own = isinstance(var, type) and var.__module__ == module.__name__
        if is_own and issubclass(var, WireArray | WireMap):
            yield var


TYPES: Final = tuple(type_ for module in _MODULES for type_ in _types(module))


def sample(chance: random.Random, cls: Any) -> Any:
    """A valid object of a wire type, with random optional fields."""
    special = _SPECIAL.get(cls, _nothing)(chance)
    values = {
        name: special[name] if name in special else _value(chance, annotation)
        for name, annotation in _annotations(cls).items()
    }
    return cls(**values)


def carries_raw_items(cls: Any) -> bool:
    """Whether a field holds an undecoded item."""
    return any(_has_raw(annotation) for annotation in _annotations(cls).values())


def _annotations(cls: Any) -> dict[str, Any]:
    hints = get_type_hints(cls, include_extras=True)
    return {field.name: hints[field.name] for field in fields(cls)}


def _has_raw(annotation: Any) -> bool:
    if get_origin(annotation) is Annotated:
        return getattr(get_args(annotation)[1], "name", "") == "raw item"
    if isinstance(annotation, type) and issubclass(annotation, WireArray | WireMap):
        return carries_raw_items(annotation)
    return any(_has_raw(arg) for arg in get_args(annotation))


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
    ProofStep: lambda chance: {"dir": chance.randrange(2)},
}


class Unexpected(VeenError):
    """A result that differs from the expected one."""


@dataclass(frozen=True, slots=True)
class SelftestStep(Generic[W]):
    name: str
    run: Callable[[W], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class StepResult:
    """The outcome of a step; ``detail`` says what was expected and what came, if it failed."""

    suite: str
    name: str
    ok: bool
    seconds: float
    detail: str | None

    def to_json(self) -> dict[str, Any]:
        return {
            "suite": self.suite,
            "name": self.name,
            "ok": self.ok,
            "seconds": round(self.seconds, 3),
            "detail": self.detail,
        }


def run(
    suite: str,
    steps: Iterable[SelftestStep[W]],
    begin: Callable[[str], W],
    clock: Callable[[], float],
) -> Iterator[StepResult]:
    """Run steps in order; a failed step does not stop the others.

    ``begin`` prepares the world of a step; if it fails, the step fails.
    """
    for step in steps:
        start = clock()
        detail = None
        try:
            step.run(begin(step.name))
        except Exception as error:  # noqa: BLE001 - whatever goes wrong within it, the step failed
            detail = _describe(error)
        yield StepResult(
            suite=suite, name=step.name, ok=detail is None, seconds=clock() - start, detail=detail
        )


def _describe(error: Exception) -> str:
    text = "; ".join([str(error), *getattr(error, "__notes__", [])])
    return text if isinstance(error, Unexpected) else f"{type(error).__name__}: {text}"


def expect(what: str, value: object, expected: object) -> None:
    if value != expected:
        raise Unexpected(f"{what}: expected {_short(expected)}, got {_short(value)}")


def expect_that(holds: bool, what: str) -> None:
    if not holds:
        raise Unexpected(f"expected that {what}")


def expect_raises(
    what: str, kind: type[Exception], call: Callable[..., object], *given: Any, **named: Any
) -> Exception:
    """The error of a call that must fail with this type."""
    try:
        returned = call(*given, **named)
    except kind as error:
        return error
    except Exception as error:
        raise Unexpected(f"{what}: expected {kind.__name__}, got {_describe(error)}") from error
    raise Unexpected(f"{what}: expected {kind.__name__}, but it was taken: {_short(returned)}")


def _short(value: object) -> str:
    text = value.hex() if isinstance(value, bytes) else repr(value)
    return text if len(text) <= 160 else f"{text[:160]}…"
