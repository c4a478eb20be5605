"""The client: what a program embeds to send to a hub, and to read what it can prove."""

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
    Bounds,
    Flushed,
    Late,
    Note,
    Options,
    Outbox,
    SentEvent,
    batches,
    form_of,
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
from veen.keystore.directory import ClientDir, lock_within
from veen.label import DEFAULT_PROFILE, Profile
from veen.msg import Msg
from veen.payload import Opened, open_with_any
from veen.system.environment import Progress, Runtime, no_progress
from veen.system.process_pool import pool

_ALL: Final = (1 << 63) - 1
_BYTES_AT_A_TIME: Final = 8 << 20
_ABOUT_ONE_STREAM: Final = (Rejected, HubRefused, StateLost, WrongSize)


class Client:
    """One client directory and one hub, for as long as it is open; threads may share it."""

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
        """No other process can have the directory meanwhile. The hub is asked when it is needed,
        and at once only where neither ``hub_id``, a data directory nor the past names it.

        So many ``sealers`` are processes beside this one, started when there is much to send.
        ``reader_keys`` open messages too, beside the keys of the directory; nothing is signed or
        sealed with them. A directory that another process holds is waited for ``lock_wait_sec``.
        """
        around = runtime or Runtime(
            clock=lambda: int(time.time()), random=os.urandom, sleep=time.sleep
        )
        address, home = resolve_address(hub), ClientDir(directory)
        with ExitStack() as closing:
            closing.enter_context(lock_within(home, lock_wait_sec, around.sleep))
            identity = home.open(passphrase).opening_also(reader_keys)
            transport = Transport(
                address.url,
                runtime=around,
                credentials=credentials,
                retry_policy=retry_policy,
                tls=tls,
            )
            closing.callback(transport.close)
            session = Session(home.root, identity, HubApi(transport), around)
            outbox = Outbox(home.outbox, identity.outbox_key, around.random, bounds)
            closing.callback(outbox.close)
            sealing = SealingPool(lambda: pool(sealers))
            closing.callback(sealing.close)
            client = cls(home, session, outbox, address, batch, sealing)
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
        """Keep an event, to be sent by ``flush``; it survives whatever happens after return."""
        return self.emit_many(stream, [body], **options)[0]

    def emit_many(
        self, stream: str, bodies: Iterable[bytes], **options: Unpack[Options]
    ) -> list[int]:
        """Keep events, all of them or none."""
        drafts = self._drafts(stream, bodies, options)
        return self._outbox.add(self._hub_id, drafts) if drafts else []

    def emit_each(
        self,
        events: Iterable[tuple[str, bytes]],
        *,
        note: Note | None = None,
        **options: Unpack[Options],
    ) -> list[int]:
        """Keep events of many streams, and a note with them: all of it or nothing."""
        pairs = list(events)
        forms = {name: self._form(name, options) for name, _ in pairs}
        drafts = self._sized([QueuedMessage(forms[name], body) for name, body in pairs])
        return self._outbox.add(self._hub_id, drafts, note) if drafts or note else []

    def note(self, name: str) -> bytes | None:
        """The last note of that name that was kept."""
        return self._outbox.note(name)

    def notes(self, prefix: str) -> frozenset[str]:
        """The names of the notes that were kept, of those that begin with ``prefix``."""
        return self._outbox.notes(prefix)

    def send(self, stream: str, body: bytes, **options: Unpack[Options]) -> SentEvent:
        """Send an event and have its receipt verified.

        One that the hub refuses for good is withdrawn. Whatever else is raised leaves the event
        in the outbox, and the notes of the error say so: it may be in the log by now.
        """
        (sent,) = self.send_many(stream, [body], **options)
        return sent

    def send_many(
        self, stream: str, bodies: Iterable[bytes], **options: Unpack[Options]
    ) -> Iterator[SentEvent]:
        """Send events in batches; each is given back in turn, once it has landed."""
        with self._draining:
            due: dict[int, None] = {}
            supply = self._supply(stream, bodies, options, due)
            try:
                yield from self._landed(supply, due)
            except VeenError as error:
                error.add_note(self._left(error, list(due)))
                raise

    def flush(self, progress: Progress = no_progress) -> Flushed:
        """Send all that was emitted. A stream that does not get on does not hold up the others."""
        with self._draining:
            self.meet()
            before, landed, due = len(self._outbox.late()), 0, self.pending()
            failed: list[VeenError] = []
            for draft in self._outbox.queues(self._hub_id):
                queue = self._sealer.queue(draft)
                try:
                    for _ in self._sender.drain(queue, _ALL, lambda: _ALL, patient=True):
                        landed += 1
                        progress(landed, due)
                except _ABOUT_ONE_STREAM as error:
                    error.add_note(self._waits(queue))
                    failed.append(error)
            if failed:
                raise failed[0]
            return Flushed(landed, tuple(self._outbox.late()[before:]))

    def pending(self) -> int:
        """How many events are still to be sent to this hub."""
        return self._outbox.pending(self._hub_id)

    def late(self) -> list[Late]:
        """The events that had been withdrawn, and are in the log all the same."""
        return self._outbox.late()

    def renew(self, capability: CapToken) -> None:
        """Write with this capability from now on, also what an older one let wait."""
        self._sealer.renew(capability)

    def withdraw(self, event_id: int) -> bool:
        """Give an event up; not while later ones of its stream are on their way."""
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
        """Whether the hub has the stream at all, be it without messages."""
        labels = self.meet().labels(stream, profile)
        return is_known(self.session, labels, stream)

    def open_payload(self, msg: Msg, profile: Profile = DEFAULT_PROFILE) -> Opened:
        """The payload of a message with whichever of our keys opens it, or Unopenable."""
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
        """The session, once the hub has been asked who it is."""
        if not self._has_met:
            self.session.meet(self._address, self._expected)
            self._has_met = True
        return self.session

    def _name_hub(self, hub_id: bytes | None) -> None:
        """Whom the events of this client are for, even before it has answered."""
        self._expected = hub_id
        known = self.session.state.hubs.get(self._address.url)
        pin = self._address.identity or (known.identity if known else None)
        if hub_id is None and pin is None:
            self.meet()
            pin = self.session.hub
        self._hub_id = hub_id or (pin.hub_id if pin else b"")

    def _drafts(
        self, stream: str, bodies: Iterable[bytes], options: Options
    ) -> list[QueuedMessage]:
        form, attachments = self._form(stream, options), tuple(options.get("attachments", ()))
        return self._sized([QueuedMessage(form, body, attachments) for body in bodies])

    def _form(self, stream: str, options: Options) -> MessageTemplate:
        capability = options.get("capability")
        auth_ref = self._sealer.renew(capability) if capability else None
        return form_of(stream, options, options.get("recipient") or self._own_key(), auth_ref)

    def _sized(self, drafts: list[QueuedMessage]) -> list[QueuedMessage]:
        for draft in drafts:
            draft.check_sizes(self.session.limits)
        return drafts

    def _own_key(self) -> bytes:
        """Our newest prekey; the card is verified where the last choice does not hold any more."""
        card, now = self.session.identity.card, self.session.runtime.clock()
        if now > self._own_key_until:
            self._own_prekey = card.recipient(now)
            self._own_key_until = max(
                prekey.expires_at for prekey in card.prekeys if prekey.prekey == self._own_prekey
            )
        return self._own_prekey

    def _supply(
        self, stream: str, bodies: Iterable[bytes], options: Options, due: dict[int, None]
    ) -> Iterator[QueuedMessage]:
        """Keeps a portion of the events each time it is asked; gives one of them back."""
        for batch in batches(bodies, self._batch, _BYTES_AT_A_TIME):
            drafts = self._drafts(stream, batch, options)
            due.update(dict.fromkeys(self._outbox.add(self._hub_id, drafts)))
            yield drafts[0]

    def _landed(self, supply: Iterator[QueuedMessage], due: dict[int, None]) -> Iterator[SentEvent]:
        first = next(supply, None)
        if first is None:
            return
        last = max(due)

        def feed() -> int:
            nonlocal last
            next(supply, None)
            last = max((last, *due))
            return last

        for landed in self._sender.drain(self._queue(first), last, feed, patient=False):
            if landed.slot.event_id in due:
                del due[landed.slot.event_id]
                yield self._sent(landed)

    def _queue(self, draft: QueuedMessage) -> StreamQueue:
        self.meet()
        return self._sealer.queue(draft)

    def _left(self, error: VeenError, due: list[int]) -> str:
        """Withdraw what can never be sent as it is; what became of the events, in words."""
        is_final = isinstance(error, WrongSize) or (
            isinstance(error, Rejected | HubRefused) and is_lasting(error)
        )
        gone = is_final and self._outbox.withdraw(due)
        what = "withdrawn" if gone else "left in the outbox"
        return f"{what}: {len(due)} events from number {due[0]} on" if due else "all were sent"

    def _waits(self, queue: StreamQueue) -> str:
        return f"event {self._outbox.first(queue.key)} for {queue.name} is left in the outbox"

    def _sent(self, landed: Acknowledged) -> SentEvent:
        attempt = landed.attempt
        attachments = tuple(
            self._sealer.path(attachment_id_).read_bytes()
            for attachment_id_ in attempt.attachment_ids()
        )
        return SentEvent(attempt.event_id, attempt.msg, landed.receipt, attachments, landed.size)
