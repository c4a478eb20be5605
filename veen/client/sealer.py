"""From drafts to flights: each gets the next client_seq of its label, a seal and a signature.

Whether files are the attachments that a message commits to, each in its place (spec 4.6).

Payloads for neighbouring places of a label, sealed together: here, or by a process beside.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, replace
from itertools import chain, count, groupby
from pathlib import Path
from typing import Final, NamedTuple

from veen import msg
from veen.captoken import CapToken
from veen.client.queued import MessageTemplate, QueuedMessage, SubmitAttempt
from veen.client.session import Session
from veen.client.transport import StateLost
from veen.crypto import HPKE_KEY_BYTES
from veen.errors import Malformed
from veen.label import EpochLabels, stream_id
from veen.limits import Limits
from veen.payload import (
    Opened,
    Sealed,
    SealPlace,
    attachment_coid,
    check_attachment_sizes,
    seal_payload,
    verify_attachment_root,
)
from veen.payload import Sealed as SealedPayload
from veen.system import durable
from veen.system.process_pool import IN_PROCESS, PoolBroken, WorkerPool


def verify_files(opened: Opened, files: Sequence[bytes], limits: Limits) -> list[bytes]:
    """The coid of each file, once all of them together give the header's att_root."""
    check_attachment_sizes(files, limits)
    sealed = [opened.keys.seal(index, file) for index, file in enumerate(files)]
    verify_attachment_root(opened.header.att_root, sealed, limits)
    return [attachment_coid(item) for item in sealed]


TOGETHER: Final = 64
"""As many are handed over in one go; fewer are sealed here."""
_log = logging.getLogger(__name__)

OpenCrew = Callable[[], AbstractContextManager[WorkerPool]]


class OutgoingPayload(NamedTuple):
    client_seq: int
    ephemeral: bytes
    body: bytes
    attachments: tuple[bytes, ...]


class Payloads(NamedTuple):
    form: MessageTemplate
    limits: Limits
    label: bytes
    client_id: bytes
    prev_ack: int
    auth_ref: bytes | None
    each: Sequence[OutgoingPayload]

    def parts(self) -> Iterator[Payloads]:
        for start in range(0, len(self.each), TOGETHER):
            yield self._replace(each=self.each[start : start + TOGETHER])


def seal_all(some: Payloads) -> list[Sealed]:
    """Touches nothing but its arguments."""
    return [
        seal_payload(
            recipient=some.form.recipient,
            ephemeral=payload.ephemeral,
            place=SealPlace(
                profile=some.form.profile,
                label=some.label,
                client_id=some.client_id,
                client_seq=payload.client_seq,
                prev_ack=some.prev_ack,
                auth_ref=some.auth_ref,
            ),
            header=some.form.header,
            body=payload.body,
            attachments=payload.attachments,
            limits=some.limits,
        )
        for payload in some.each
    ]


class SealingPool:
    """Starts its processes when there is enough to seal, and does without those that ended."""

    def __init__(self, open_pool: OpenCrew) -> None:
        self._open_pool = open_pool
        self._pool: WorkerPool | None = None
        self._closing = ExitStack()

    def seal(self, payloadses: Iterable[Payloads]) -> list[Sealed]:
        """Each payload, in order. None of them leaves this machine, nor does any secret of ours."""
        parts = [part for some in payloadses for part in some.parts()]
        if sum(len(part.each) for part in parts) < TOGETHER:
            return [*chain.from_iterable(map(seal_all, parts))]
        try:
            return [*chain.from_iterable(self._started().run(seal_all, parts))]
        except PoolBroken as error:
            _log.warning("%s; payloads are sealed by this process from now on", error)
            self._pool = IN_PROCESS
            return [*chain.from_iterable(map(seal_all, parts))]

    def close(self) -> None:
        self._closing.close()

    def _started(self) -> WorkerPool:
        if self._pool is None:
            self._pool = self._closing.enter_context(self._open_pool())
        return self._pool


@dataclass(frozen=True, slots=True)
class StreamQueue:
    """One stream of one hub: what is sent in order."""

    key: bytes
    name: str
    labels: EpochLabels


@dataclass(frozen=True, slots=True)
class SequencePosition:
    """A place in a label, and what its client has seen of the label so far."""

    label: bytes
    epoch: int
    client_seq: int
    prev_ack: int


@dataclass(frozen=True, slots=True)
class SealedMessage:
    """A flight with its sealed attachments, which the hub does not keep for anyone."""

    attempt: SubmitAttempt
    attachments: tuple[bytes, ...]


class MessageSealer:
    def __init__(self, session: Session, attachments: Path, pool: SealingPool) -> None:
        self._session = session
        self._attachments = attachments
        self._pool = pool
        self._auth_refs: dict[bytes, bytes] = {}

    def renew(self, token: CapToken) -> bytes:
        """From now on this is the capability for its streams; its auth_ref."""
        if token.subject_pk != self._session.identity.client_id:
            raise Malformed(f"the capability is for client_id {token.subject_pk.hex()}, not ours")
        auth_ref = token.auth_ref()
        self._auth_refs.update(dict.fromkeys(token.allow.stream_ids, auth_ref))
        return auth_ref

    def auth_ref(self, draft: QueuedMessage) -> bytes | None:
        form = draft.form
        if not self._auth_refs:
            return form.auth_ref
        return self._auth_refs.get(stream_id(form.stream), form.auth_ref)

    def queue(self, draft: QueuedMessage) -> StreamQueue:
        form = draft.form
        labels = self._session.labels(form.stream, form.profile)
        return StreamQueue(form.queue(self._session.hub.hub_id), form.stream, labels)

    def position(self, queue: StreamQueue) -> SequencePosition:
        """The place after all that have landed, in the label of now."""
        epoch = queue.labels.profile.epoch(self._session.hub_now())
        label = queue.labels.at(epoch)
        view = self._session.view(label, queue.name, epoch)
        cursor = view.cursor(self._session.identity.client_id)
        if cursor.prev_ack > view.seen:
            raise StateLost(f"{queue.name}: more was acknowledged than is known; run veen resync")
        return SequencePosition(label, epoch, cursor.client_seq + 1, view.seen)

    def seal(
        self, position: SequencePosition, events: Sequence[tuple[int, QueuedMessage]]
    ) -> list[SealedMessage]:
        """Touches nothing but its arguments and chance: another thread may run it."""
        payloads = self._pool.seal(self._payloads(position, [draft for _, draft in events]))
        return [
            self._signed(replace(position, client_seq=seq), event_id, draft, payload)
            for seq, ((event_id, draft), payload) in enumerate(
                zip(events, payloads, strict=True), position.client_seq
            )
        ]

    def store(self, sealed: Sequence[SealedMessage]) -> list[SubmitAttempt]:
        """The flights, once their attachments are on disk to be handed on."""
        for message in sealed:
            for raw in message.attachments:
                durable.write_once(self.path(attachment_coid(raw)), raw)
        return [message.attempt for message in sealed]

    def discard(self, attempts: Iterable[SubmitAttempt]) -> None:
        """Remove the attachments of attempts that came to nothing."""
        for attempt in attempts:
            for coid in attempt.attachment_ids():
                self.path(coid).unlink(missing_ok=True)

    def path(self, coid: bytes) -> Path:
        return self._attachments / coid.hex()

    def _payloads(
        self, position: SequencePosition, drafts: Sequence[QueuedMessage]
    ) -> Iterator[Payloads]:
        """What is to be sealed, in runs of the same form."""
        random = self._session.runtime.random
        seqs = count(position.client_seq)
        for (form, auth_ref), some in groupby(
            drafts, lambda item: (item.form, self.auth_ref(item))
        ):
            yield Payloads(
                form=form,
                limits=self._session.limits,
                label=position.label,
                client_id=self._session.identity.client_id,
                prev_ack=position.prev_ack,
                auth_ref=auth_ref,
                each=[
                    OutgoingPayload(next(seqs), random(HPKE_KEY_BYTES), item.body, item.attachments)
                    for item in some
                ],
            )

    def _signed(
        self,
        position: SequencePosition,
        event_id: int,
        draft: QueuedMessage,
        payload: SealedPayload,
    ) -> SealedMessage:
        identity, auth_ref = self._session.identity, self.auth_ref(draft)
        issued = msg.issue(
            identity.client,
            profile_id=draft.form.profile.profile_id(),
            label=position.label,
            client_seq=position.client_seq,
            prev_ack=position.prev_ack,
            auth_ref=auth_ref,
            ciphertext=payload.ciphertext,
        )
        attempt = SubmitAttempt(
            event_id=event_id,
            label=position.label,
            epoch=position.epoch,
            client_id=identity.client_id,
            client_seq=position.client_seq,
            prev_ack=position.prev_ack,
            auth_ref=auth_ref,
            leaf=issued.leaf,
            coids=b"".join(attachment_coid(attachment) for attachment in payload.attachments),
            msg=issued.raw,
        )
        return SealedMessage(attempt, payload.attachments)
