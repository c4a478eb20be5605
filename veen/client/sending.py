"""What a program says when it sends, and what it is told when that has landed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, TypedDict

from veen.captoken import CapToken
from veen.client.draft import Form
from veen.client.outbox import Late
from veen.digest import h
from veen.msg import Msg
from veen.payload import PayloadHdr
from veen.profile import DEFAULT_PROFILE, Profile
from veen.receipt import Receipt

BYTES_SCHEMA: Final = h(b"veen.bytes.v1")
"""The schema of a body that says nothing of itself."""


class Options(TypedDict, total=False):
    """Beside stream and body. Without ``recipient`` an event is sealed to ourselves."""

    schema: bytes
    recipient: bytes | None
    attachments: Sequence[bytes]
    parent_id: bytes | None
    expires_at: int | None
    capability: CapToken | None
    profile: Profile


@dataclass(frozen=True, slots=True)
class Sent:
    """An event that is in the log; ``size`` is how much of the label is proved to us by now."""

    event_id: int
    msg_bytes: bytes = field(repr=False)
    receipt: Receipt
    attachments: tuple[bytes, ...]
    size: int

    @property
    def msg(self) -> Msg:
        return Msg.decode(self.msg_bytes)


@dataclass(frozen=True, slots=True)
class Flushed:
    """How many events landed, and which had landed though they were withdrawn before."""

    landed: int
    late: tuple[Late, ...]


def form_of(stream: str, options: Options, recipient: bytes, auth_ref: bytes | None) -> Form:
    return Form(
        stream=stream,
        profile=options.get("profile", DEFAULT_PROFILE),
        recipient=recipient,
        header=PayloadHdr(
            schema=options.get("schema", BYTES_SCHEMA),
            parent_id=options.get("parent_id"),
            expires_at=options.get("expires_at"),
        ),
        auth_ref=auth_ref,
    )


def portions(bodies: Iterable[bytes], count: int, size: int) -> Iterator[list[bytes]]:
    """Bodies in lists of so many at most, or so many bytes, but one at least."""
    portion: list[bytes] = []
    left = size
    for body in bodies:
        if portion and (len(portion) == count or len(body) > left):
            yield portion
            portion, left = [], size
        portion.append(body)
        left -= len(body)
    if portion:
        yield portion
