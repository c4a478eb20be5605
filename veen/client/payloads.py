"""Payloads for neighbouring places of a label, sealed together: here, or by a process beside."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack
from itertools import chain
from typing import Final, NamedTuple

from veen.client.draft import Form
from veen.crew import HERE, Crew, CrewEnded
from veen.limits import Limits
from veen.seal import Place, Sealed, seal

TOGETHER: Final = 64
"""As many are handed over in one go; fewer are sealed here."""
_log = logging.getLogger(__name__)

OpenCrew = Callable[[], AbstractContextManager[Crew]]


class Payload(NamedTuple):
    client_seq: int
    ephemeral: bytes
    body: bytes
    attachments: tuple[bytes, ...]


class Payloads(NamedTuple):
    form: Form
    limits: Limits
    label: bytes
    client_id: bytes
    prev_ack: int
    auth_ref: bytes | None
    each: Sequence[Payload]

    def parts(self) -> Iterator[Payloads]:
        for start in range(0, len(self.each), TOGETHER):
            yield self._replace(each=self.each[start : start + TOGETHER])


def seal_all(some: Payloads) -> list[Sealed]:
    """Touches nothing but its arguments."""
    return [
        seal(
            recipient=some.form.recipient,
            ephemeral=one.ephemeral,
            place=Place(
                profile=some.form.profile,
                label=some.label,
                client_id=some.client_id,
                client_seq=one.client_seq,
                prev_ack=some.prev_ack,
                auth_ref=some.auth_ref,
            ),
            header=some.form.header,
            body=one.body,
            attachments=one.attachments,
            limits=some.limits,
        )
        for one in some.each
    ]


class SealingCrew:
    """Starts its processes when there is enough to seal, and does without those that ended."""

    def __init__(self, open_crew: OpenCrew) -> None:
        self._open_crew = open_crew
        self._crew: Crew | None = None
        self._closing = ExitStack()

    def seal(self, wanted: Iterable[Payloads]) -> list[Sealed]:
        """Each payload, in order. None of them leaves this machine, nor does any secret of ours."""
        parts = [part for some in wanted for part in some.parts()]
        if sum(len(part.each) for part in parts) < TOGETHER:
            return [*chain.from_iterable(map(seal_all, parts))]
        try:
            return [*chain.from_iterable(self._started().run(seal_all, parts))]
        except CrewEnded as error:
            _log.warning("%s; payloads are sealed by this process from now on", error)
            self._crew = HERE
            return [*chain.from_iterable(map(seal_all, parts))]

    def close(self) -> None:
        self._closing.close()

    def _started(self) -> Crew:
        if self._crew is None:
            self._crew = self._closing.enter_context(self._open_crew())
        return self._crew
