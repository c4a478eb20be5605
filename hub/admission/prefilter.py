"""Stage 1 of admission: sizes, before anything is parsed (spec 8.1)."""

from veen.errors import Failure, Rejected
from veen.limits import Limits


def prefilter(raw: bytes, limits: Limits) -> bytes:
    if len(raw) > limits.max_msg_bytes:
        raise Rejected(
            Failure.SIZE_PREFILTER,
            f"a message of {len(raw)} bytes, {limits.max_msg_bytes} are allowed",
        )
    return raw
