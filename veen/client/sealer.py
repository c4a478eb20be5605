"""Sealing: each queued message gets a client_seq of its label, a sealed payload and a signature.

Payloads of consecutive positions are sealed in batches, in this process or by worker processes.
``verify_files`` checks that files are the attachments that a message commits to (spec 4.6).
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

TOGETHER: Final = 64
"""The batch size of a worker process; fewer payloads are sealed in this process."""
_log = logging.getLogger(__name__)
OpenPool = Callable[[], AbstractContextManager[WorkerPool]]


def verify_files(opened: Opened, files: Sequence[bytes], limits: Limits) -> list[bytes]:
    """The coid of each file, once all of them together give the header's att_root."""
    check_attachment_sizes(files, limits)
    sealed = [opened.keys.seal(index, file) for index, file in enumerate(files)]
    verify_attachment_root(opened.header.att_root, sealed, limits)
    return [attachment_coid(attachment) for attachment in sealed]


class OutgoingPayload(NamedTuple):
    """A payload to seal, with its client_seq and ephemeral key."""

    client_seq: int
    ephemeral: bytes
    body: bytes
    attachments: tuple[bytes, ...]


class Payloads(NamedTuple):
    """Payloads of consecutive positions of a label with the same template."""

    template: MessageTemplate
    limits: Limits
    label: bytes
    client_id: bytes
    prev_ack: int
    auth_ref: bytes | None
    each: Sequence[OutgoingPayload]

    def parts(self) -> Iterator[Payloads]:
        for start in range(0, len(self.each), TOGETHER):
            yield self._replace(each=self.each[start : start + TOGETHER])


def seal_all(payloads: Payloads) -> list[Sealed]:
    """Seal payloads; a pure function, which a worker process can run."""
    return [
        seal_payload(
            recipient=payloads.template.recipient,
            ephemeral=payload.ephemeral,
            place=SealPlace(
                profile=payloads.template.profile,
                label=payloads.label,
                client_id=payloads.client_id,
                client_seq=payload.client_seq,
                prev_ack=payloads.prev_ack,
                auth_ref=payloads.auth_ref,
            ),
            header=payloads.template.header,
            body=payload.body,
            attachments=payload.attachments,
            limits=payloads.limits,
        )
        for payload in payloads.each
    ]


class SealingPool:
    """A lazily started worker pool; if it breaks, payloads are sealed in this process."""

    def __init__(self, open_pool: OpenPool) -> None:
        self._open_pool = open_pool
        self._pool: WorkerPool | None = None
        self._closing = ExitStack()

    def seal(self, runs: Iterable[Payloads]) -> list[Sealed]:
        """Seal all payloads, in order."""
        payloads = list(runs)
        if sum(len(run.each) for run in payloads) < TOGETHER:
            return [*chain.from_iterable(map(seal_all, payloads))]
        parts = [part for run in payloads for part in run.parts()]
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
    """The queue of a stream of a hub, which is sent in order."""

    key: bytes
    name: str
    labels: EpochLabels


@dataclass(frozen=True, slots=True)
class SequencePosition:
    """A client_seq in a label, and the prev_ack to send with it."""

    label: bytes
    epoch: int
    client_seq: int
    prev_ack: int


@dataclass(frozen=True, slots=True)
class SealedMessage:
    """An attempt with its sealed attachments, which the hub does not store."""

    attempt: SubmitAttempt
    attachments: tuple[bytes, ...]


class MessageSealer:
    """Seals and signs messages, and stores their attachments."""

    def __init__(self, session: Session, attachments: Path, pool: SealingPool) -> None:
        self._session = session
        self._attachments = attachments
        self._pool = pool
        self._auth_refs: dict[bytes, bytes] = {}

    def renew(self, token: CapToken) -> bytes:
        """Use a capability for its streams from now on; its auth_ref."""
        if token.subject_pk != self._session.client_id:
            raise Malformed(
                f"the capability is for client_id {token.subject_pk.hex()}, not for this identity"
            )
        auth_ref = token.auth_ref()
        self._auth_refs.update(dict.fromkeys(token.allow.stream_ids, auth_ref))
        return auth_ref

    def auth_ref(self, message: QueuedMessage) -> bytes | None:
        template = message.template
        if not self._auth_refs:
            return template.auth_ref
        return self._auth_refs.get(stream_id(template.stream), template.auth_ref)

    def queue(self, message: QueuedMessage) -> StreamQueue:
        template = message.template
        labels = self._session.labels(template.stream, template.profile)
        return StreamQueue(template.queue(self._session.hub.hub_id), template.stream, labels)

    def position(self, queue: StreamQueue) -> SequencePosition:
        """The position after all acknowledged messages, in the label of the current epoch."""
        epoch = queue.labels.profile.epoch(self._session.hub_now())
        label = queue.labels.at(epoch)
        view = self._session.view(label, queue.name, epoch)
        cursor = view.cursor(self._session.client_id)
        if cursor.prev_ack > view.seen:
            raise StateLost(f"{queue.name}: more was acknowledged than is known; run veen resync")
        return SequencePosition(label, epoch, cursor.client_seq + 1, view.seen)

    def seal(
        self, position: SequencePosition, events: Sequence[tuple[int, QueuedMessage]]
    ) -> list[SealedMessage]:
        """Seal and sign messages. It changes no state, so another thread may run it."""
        payloads = self._pool.seal(self._payloads(position, [message for _, message in events]))
        return [
            self._signed(replace(position, client_seq=seq), event_id, message, payload)
            for seq, ((event_id, message), payload) in enumerate(
                zip(events, payloads, strict=True), position.client_seq
            )
        ]

    def store(self, sealed: Sequence[SealedMessage]) -> list[SubmitAttempt]:
        """Store the attachments durably; the attempts."""
        for message in sealed:
            for raw in message.attachments:
                durable.write_once(self.path(attachment_coid(raw)), raw)
        return [message.attempt for message in sealed]

    def discard(self, attempts: Iterable[SubmitAttempt]) -> None:
        """Remove the attachments of discarded attempts."""
        for attempt in attempts:
            for coid in attempt.attachment_ids():
                self.path(coid).unlink(missing_ok=True)

    def path(self, coid: bytes) -> Path:
        return self._attachments / coid.hex()

    def _payloads(
        self, position: SequencePosition, messages: Sequence[QueuedMessage]
    ) -> Iterator[Payloads]:
        """The payloads to seal, in runs of the same template."""
        random = self._session.runtime.random
        seqs = count(position.client_seq)
        for (template, auth_ref), run in groupby(
            messages, lambda message: (message.template, self.auth_ref(message))
        ):
            yield Payloads(
                template=template,
                limits=self._session.limits,
                label=position.label,
                client_id=self._session.client_id,
                prev_ack=position.prev_ack,
                auth_ref=auth_ref,
                each=[
                    OutgoingPayload(
                        next(seqs), random(HPKE_KEY_BYTES), message.body, message.attachments
                    )
                    for message in run
                ],
            )

    def _signed(
        self,
        position: SequencePosition,
        event_id: int,
        message: QueuedMessage,
        payload: SealedPayload,
    ) -> SealedMessage:
        identity, auth_ref = self._session.identity, self.auth_ref(message)
        issued = msg.issue(
            identity.client,
            profile_id=message.template.profile.profile_id(),
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
            client_id=self._session.client_id,
            client_seq=position.client_seq,
            prev_ack=position.prev_ack,
            auth_ref=auth_ref,
            leaf=issued.leaf,
            coids=b"".join(attachment_coid(attachment) for attachment in payload.attachments),
            msg=issued.raw,
        )
        return SealedMessage(attempt, payload.attachments)
