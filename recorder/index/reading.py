"""What a message turns out to be when the reader's keys are tried on it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from veen import seal
from veen.errors import Unopenable
from veen.limits import Limits
from veen.msg import Msg
from veen.profile import DEFAULT_PROFILE
from veen.record_event import EventFault, NotAnEvent, read_event
from veen.seal import Opened


class Reading(NamedTuple):
    """The fields of an event and the key of its body, or the fault for which it is none."""

    fault: str | None
    subject_id: str | None = None
    principal_id: bytes | None = None
    event_type: str | None = None
    event_time: int | None = None
    origin: str | None = None
    payload: bytes | None = None
    body_key: bytes | None = None


class Reader:
    """The reader's private keys; recorder streams have the default profile."""

    def __init__(self, keys: Sequence[bytes], limits: Limits) -> None:
        self._keys = list(keys)
        self._limits = limits

    def read(self, raw: bytes) -> Reading:
        """Of a message whose signature and place were verified elsewhere."""
        msg = Msg.decode(raw)
        opened = self._open(msg)
        if opened is None:
            return Reading(EventFault.UNOPENED.name)
        try:
            event = read_event(opened.header.schema, opened.body, msg.client_id)
        except NotAnEvent as error:
            return Reading(error.fault.name)
        return Reading(
            None,
            event.subject_id,
            event.principal_id,
            event.event_type,
            event.event_time,
            event.origin,
            bytes(event.payload),
            opened.body_key,
        )

    def _open(self, msg: Msg) -> Opened | None:
        try:
            return seal.open_with_any(self._keys, msg, DEFAULT_PROFILE, self._limits)
        except Unopenable:
            return None
