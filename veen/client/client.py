"""The client: sends events to a hub, and reads what the hub can prove."""

from __future__ import annotations

import os
import ssl
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from threading import RLock
from typing import Final, Self, Unpack

from veen.captoken import CapToken
from veen.client import reader, resync
from veen.client.credentials import Credentials
from veen.client.hub_api import HubApi
from veen.client.log_head import Pair
from veen.client.outbox import (
    BYTES_SCHEMA,
    Bounds,
    Flushed,
    Late,
    Note,
    Options,
    Outbox,
    SentEvent,
    batches,
    message_template,
)
from veen.client.queued import MessageTemplate, QueuedMessage
from veen.client.reader import is_known
from veen.client.receipts import ReceiptBook
from veen.client.resync import Resynced, StateVerdict, verify_state
from veen.client.sealer import MessageSealer, SealingPool, StreamQueue
from veen.client.sender import BATCH, Sender
from veen.client.session import Session
from veen.client.submit_result import Acknowledged, is_lasting
from veen.client.transport import (
    HubAddress,
    HubRefused,
    RetryPolicy,
    StateLost,
    Transport,
    resolve_address,
)
from veen.errors import Rejected, VeenError, WrongSize
from veen.keystore.directory import ClientDir, ClientDirLock
from veen.label import DEFAULT_PROFILE, Profile
from veen.msg import Msg
from veen.payload import Opened, open_with_any
from veen.system.environment import Progress, Runtime, no_progress
from veen.system.filelock import LockWait
from veen.system.process_pool import pool

_ALL: Final = (1 << 63) - 1
_BYTES_AT_A_TIME: Final = 8 << 20
_ABOUT_ONE_STREAM: Final = (Rejected, HubRefused, StateLost, WrongSize)


class Client:
    """A client directory and its hub. Thread-safe."""

    def __init__(
        self,
        directory: ClientDir,
        session: Session,
        outbox: Outbox,
        address: HubAddress,
        batch: int,
        sealing: SealingPool,
    ) -> None:
        self.session = session
        self._outbox = outbox
        self._address = address
        self._expected: bytes | None = None
        self._hub_id = b""
        self._has_met = False
        self._own_prekey, self._own_key_until = b"", -1
        self._closing = ExitStack()
        self._draining = RLock()
        self._sealer = MessageSealer(session, directory.attachments, sealing)
        book = ReceiptBook(directory.receipts)
        self._batch = batch
        self._sender = Sender(session, outbox, self._sealer, book, batch)

    @classmethod
    def open(
        cls,
        directory: Path,
        hub: str,
        *,
        passphrase: bytes | None = None,
        hub_id: bytes | None = None,
        credentials: Credentials | None = None,
        retry_policy: RetryPolicy | None = None,
        tls: ssl.SSLContext | None = None,
        runtime: Runtime | None = None,
        bounds: Bounds | None = None,
        batch: int = BATCH,
        sealers: int = 0,
        reader_keys: Sequence[bytes] = (),
        lock_wait_sec: float = 0,
    ) -> Client:
        """Open a client directory, which is locked until ``close``.

        The hub is contacted when needed, and at once only if neither ``hub_id``, a data directory
        nor the stored state names it. ``sealers`` is the number of worker processes, started when
        there is much to send. ``reader_keys`` open messages in addition to the keys of the
        directory; nothing is signed or sealed with them. A directory locked by another process is
        waited for up to ``lock_wait_sec``.
        """
        runtime = runtime or Runtime(
            clock=lambda: int(time.time()), random=os.urandom, sleep=time.sleep
        )
        address, client_dir = resolve_address(hub), ClientDir(directory)
        with ExitStack() as closing:
            wait = LockWait(lock_wait_sec, runtime.sleep)
            closing.enter_context(ClientDirLock(client_dir, wait))
            identity = client_dir.open(passphrase).opening_also(reader_keys)
            transport = Transport(
                address.url,
                runtime=runtime,
                credentials=credentials,
                retry_policy=retry_policy,
                tls=tls,
            )
            closing.callback(transport.close)
            session = Session(client_dir.root, identity, HubApi(transport), runtime)
            outbox = Outbox(client_dir.outbox, identity.outbox_key, runtime.random, bounds)
            closing.callback(outbox.close)
            sealing = SealingPool(lambda: pool(sealers))
            closing.callback(sealing.close)
            client = cls(client_dir, session, outbox, address, batch, sealing)
            client._name_hub(hub_id)
            client._closing = closing.pop_all()
        return client

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._closing.close()

    def emit(self, stream: str, body: bytes, **options: Unpack[Options]) -> int:
        """Queue an event, to be sent by ``flush``; durable on return."""
        return self.emit_many(stream, [body], **options)[0]

    def emit_many(
        self, stream: str, bodies: Iterable[bytes], **options: Unpack[Options]
    ) -> list[int]:
        """Queue events atomically."""
        messages = self._messages(stream, bodies, options)
        return self._outbox.add(self._hub_id, messages) if messages else []

    def emit_each(
        self,
        events: Iterable[tuple[str, bytes]],
        *,
        note: Note | None = None,
        **options: Unpack[Options],
    ) -> list[int]:
        """Queue events of several streams and a note, atomically."""
        pairs = list(events)
        templates = {name: self._template(name, options) for name, _ in pairs}
        messages = self._verify_sizes(
            [QueuedMessage(templates[name], body) for name, body in pairs]
        )
        return self._outbox.add(self._hub_id, messages, note) if messages or note else []

    def note(self, name: str) -> bytes | None:
        """The last stored note of that name."""
        return self._outbox.note(name)

    def notes(self, prefix: str) -> frozenset[str]:
        """The names of the stored notes that begin with ``prefix``."""
        return self._outbox.notes(prefix)

    def send(self, stream: str, body: bytes, **options: Unpack[Options]) -> SentEvent:
        """Send an event and verify its receipt.

        An event that the hub refuses for good is withdrawn. After any other error it stays in the
        outbox, as the notes of the error say: it may already be in the log.
        """
        (sent,) = self.send_many(stream, [body], **options)
        return sent

    def send_many(
        self, stream: str, bodies: Iterable[bytes], **options: Unpack[Options]
    ) -> Iterator[SentEvent]:
        """Send events in batches; yield each in turn once it is acknowledged."""
        with self._draining:
            pending: dict[int, None] = {}
            supply = self._supply(stream, bodies, options, pending)
            try:
                yield from self._acknowledged(supply, pending)
            except VeenError as error:
                error.add_note(self._describe_pending(error, list(pending)))
                raise

    def flush(self, progress: Progress = no_progress) -> Flushed:
        """Send all queued events. A stream that fails does not block the others."""
        with self._draining:
            self.meet()
            count, pending = 0, self._outbox.pending(self._hub_id)
            late: list[Late] = []
            failed: list[VeenError] = []
            for message in self._outbox.queues(self._hub_id):
                queue = self._sealer.queue(message)
                try:
                    for event in self._sender.drain(queue, _ALL, lambda: _ALL, patient=True):
                        if event.is_late:
                            late.append(Late(event.attempt.event_id, event.receipt))
                            continue
                        count += 1
                        progress(count, pending)
                except _ABOUT_ONE_STREAM as error:
                    error.add_note(self._describe_waiting(queue))
                    failed.append(error)
            if failed:
                raise failed[0]
            return Flushed(count, tuple(late))

    def pending(self) -> int:
        """The number of events still to be sent to this hub."""
        return self._outbox.pending(self._hub_id)

    def late(self) -> list[Late]:
        """The events that were withdrawn but are in the log."""
        return self._outbox.late()

    def renew(self, capability: CapToken) -> None:
        """Use this capability from now on, also for queued events."""
        self._sealer.renew(capability)

    def withdraw(self, event_id: int) -> bool:
        """Remove a queued event, unless later events of its stream may have been sent."""
        with self._draining:
            return self._outbox.withdraw([event_id])

    def read(
        self,
        stream: str,
        *,
        from_seq: int = 1,
        to_seq: int | None = None,
        with_proof: bool = False,
        profile: Profile = DEFAULT_PROFILE,
    ) -> Iterator[Pair]:
        labels = self.meet().labels(stream, profile)
        return reader.read(
            self.session, labels, stream, from_seq=from_seq, to_seq=to_seq, with_proof=with_proof
        )

    def follow(
        self,
        stream: str,
        *,
        from_seq: int = 1,
        with_proof: bool = False,
        profile: Profile = DEFAULT_PROFILE,
    ) -> Iterator[Pair]:
        labels = self.meet().labels(stream, profile)
        return reader.follow(self.session, labels, stream, from_seq=from_seq, with_proof=with_proof)

    def knows(self, stream: str, profile: Profile = DEFAULT_PROFILE) -> bool:
        """Whether the hub has the stream, with or without messages."""
        labels = self.meet().labels(stream, profile)
        return is_known(self.session, labels, stream)

    def open_payload(self, msg: Msg, profile: Profile = DEFAULT_PROFILE) -> Opened:
        """The payload of a message, opened with one of our keys, or Unopenable."""
        keys = list(self.session.identity.readers())
        return open_with_any(keys, msg, profile, self.session.limits)

    def resync(
        self,
        stream: str,
        *,
        epoch: int | None = None,
        profile: Profile = DEFAULT_PROFILE,
        progress: Progress = no_progress,
    ) -> Resynced:
        labels = self.meet().labels(stream, profile)
        return resync.resync(self.session, labels, stream, epoch=epoch, progress=progress)

    def verify_state(
        self, stream: str, *, epoch: int | None = None, profile: Profile = DEFAULT_PROFILE
    ) -> StateVerdict:
        labels = self.meet().labels(stream, profile)
        return verify_state(self.session, labels, stream, epoch=epoch)

    def meet(self) -> Session:
        """The session, after the hub's identity was verified."""
        if not self._has_met:
            self.session.meet(self._address, self._expected)
            self._has_met = True
        return self.session

    def _name_hub(self, hub_id: bytes | None) -> None:
        """Determine the hub of the events, without contacting it if it is known."""
        self._expected = hub_id
        known = self.session.state.hubs.get(self._address.url)
        pin = self._address.identity or (known.identity if known else None)
        if hub_id is None and pin is None:
            self.meet()
            pin = self.session.hub
        self._hub_id = hub_id or (pin.hub_id if pin else b"")

    def _messages(
        self, stream: str, bodies: Iterable[bytes], options: Options
    ) -> list[QueuedMessage]:
        template, attachments = (
            self._template(stream, options),
            tuple(options.get("attachments", ())),
        )
        return self._verify_sizes([QueuedMessage(template, body, attachments) for body in bodies])

    def _template(self, stream: str, options: Options) -> MessageTemplate:
        capability = options.get("capability")
        auth_ref = self._sealer.renew(capability) if capability else None
        return message_template(
            stream,
            profile=options.get("profile", DEFAULT_PROFILE),
            recipient=options.get("recipient") or self._own_key(),
            schema=options.get("schema", BYTES_SCHEMA),
            parent_id=options.get("parent_id"),
            expires_at=options.get("expires_at"),
            auth_ref=auth_ref,
        )

    def _verify_sizes(self, messages: list[QueuedMessage]) -> list[QueuedMessage]:
        for message in messages:
            message.check_sizes(self.session.limits)
        return messages

    def _own_key(self) -> bytes:
        """Our newest prekey; the card is verified again when the last choice has expired."""
        card, now = self.session.identity.card, self.session.runtime.clock()
        if now > self._own_key_until:
            self._own_prekey = card.recipient(now)
            self._own_key_until = max(
                prekey.expires_at for prekey in card.prekeys if prekey.prekey == self._own_prekey
            )
        return self._own_prekey

    def _supply(
        self, stream: str, bodies: Iterable[bytes], options: Options, pending: dict[int, None]
    ) -> Iterator[QueuedMessage]:
        """Queue a batch of events each time; yield the first message of it."""
        for batch in batches(bodies, self._batch, _BYTES_AT_A_TIME):
            messages = self._messages(stream, batch, options)
            pending.update(dict.fromkeys(self._outbox.add(self._hub_id, messages)))
            yield messages[0]

    def _acknowledged(
        self, supply: Iterator[QueuedMessage], pending: dict[int, None]
    ) -> Iterator[SentEvent]:
        first = next(supply, None)
        if first is None:
            return
        last = max(pending)

        def feed() -> int:
            nonlocal last
            next(supply, None)
            last = max((last, *pending))
            return last

        for acknowledged in self._sender.drain(self._queue(first), last, feed, patient=False):
            event_id = acknowledged.attempt.event_id
            if not acknowledged.is_late and event_id in pending:
                del pending[event_id]
                yield self._sent(acknowledged)

    def _queue(self, message: QueuedMessage) -> StreamQueue:
        self.meet()
        return self._sealer.queue(message)

    def _describe_pending(self, error: VeenError, pending: list[int]) -> str:
        """Withdraw what can never be sent; what happened to the events, in words."""
        is_final = isinstance(error, WrongSize) or (
            isinstance(error, Rejected | HubRefused) and is_lasting(error)
        )
        gone = is_final and self._outbox.withdraw(pending)
        what = "withdrawn" if gone else "left in the outbox"
        return (
            f"{what}: {len(pending)} events from number {pending[0]} on"
            if pending
            else "all were sent"
        )

    def _describe_waiting(self, queue: StreamQueue) -> str:
        return f"event {self._outbox.first(queue.key)} for {queue.name} is left in the outbox"

    def _sent(self, acknowledged: Acknowledged) -> SentEvent:
        attempt = acknowledged.attempt
        attachments = tuple(
            self._sealer.path(coid).read_bytes() for coid in attempt.attachment_ids()
        )
        return SentEvent(
            attempt.event_id, attempt.msg, acknowledged.receipt, attachments, acknowledged.size
        )
