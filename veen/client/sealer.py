"""From drafts to flights: each gets the next client_seq of its label, a seal and a signature."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import count, groupby
from pathlib import Path

from veen import attachment, durable, msg
from veen.captoken import CapToken
from veen.client.draft import Draft
from veen.client.errors import StateLost
from veen.client.flight import Flight
from veen.client.payloads import Payload, Payloads, SealingCrew
from veen.client.session import Session
from veen.errors import Malformed
from veen.hpke import KEY_BYTES
from veen.label import EpochLabels
from veen.seal import Sealed as SealedPayload
from veen.stream import stream_id


@dataclass(frozen=True, slots=True)
class Lane:
    """One stream of one hub: what is sent in order."""

    key: bytes
    name: str
    labels: EpochLabels


@dataclass(frozen=True, slots=True)
class Berth:
    """A place in a label, and what its client has seen of the label so far."""

    label: bytes
    epoch: int
    client_seq: int
    prev_ack: int


@dataclass(frozen=True, slots=True)
class Sealed:
    """A flight with its sealed attachments, which the hub does not keep for anyone."""

    flight: Flight
    attachments: tuple[bytes, ...]


class Sealer:
    def __init__(self, session: Session, attachments: Path, crew: SealingCrew) -> None:
        self._session = session
        self._attachments = attachments
        self._crew = crew
        self._auth_refs: dict[bytes, bytes] = {}

    def renew(self, token: CapToken) -> bytes:
        """From now on this is the capability for its streams; its auth_ref."""
        if token.subject_pk != self._session.identity.client_id:
            raise Malformed(f"the capability is for client_id {token.subject_pk.hex()}, not ours")
        auth_ref = token.auth_ref()
        self._auth_refs.update(dict.fromkeys(token.allow.stream_ids, auth_ref))
        return auth_ref

    def auth_ref(self, draft: Draft) -> bytes | None:
        form = draft.form
        if not self._auth_refs:
            return form.auth_ref
        return self._auth_refs.get(stream_id(form.stream), form.auth_ref)

    def lane(self, draft: Draft) -> Lane:
        form = draft.form
        labels = self._session.labels(form.stream, form.profile)
        return Lane(form.lane(self._session.hub.hub_id), form.stream, labels)

    def berth(self, lane: Lane) -> Berth:
        """The place after all that have landed, in the label of now."""
        epoch = lane.labels.profile.epoch(self._session.hub_now())
        label = lane.labels.at(epoch)
        view = self._session.view(label, lane.name, epoch)
        cursor = view.cursor(self._session.identity.client_id)
        if cursor.prev_ack > view.seen:
            raise StateLost(f"{lane.name}: more was acknowledged than is known; run veen resync")
        return Berth(label, epoch, cursor.client_seq + 1, view.seen)

    def seal(self, berth: Berth, events: Sequence[tuple[int, Draft]]) -> list[Sealed]:
        """Touches nothing but its arguments and chance: another thread may run it."""
        payloads = self._crew.seal(self._payloads(berth, [draft for _, draft in events]))
        return [
            self._signed(replace(berth, client_seq=seq), event_id, draft, payload)
            for seq, ((event_id, draft), payload) in enumerate(
                zip(events, payloads, strict=True), berth.client_seq
            )
        ]

    def store(self, sealed: Sequence[Sealed]) -> list[Flight]:
        """The flights, once their attachments are on disk to be handed on."""
        for one in sealed:
            for raw in one.attachments:
                durable.write_once(self.path(attachment.coid(raw)), raw)
        return [one.flight for one in sealed]

    def discard(self, flights: Iterable[Flight]) -> None:
        """Remove the attachments of attempts that came to nothing."""
        for one in flights:
            for coid in one.attachment_ids():
                self.path(coid).unlink(missing_ok=True)

    def path(self, coid: bytes) -> Path:
        return self._attachments / coid.hex()

    def _payloads(self, berth: Berth, drafts: Sequence[Draft]) -> Iterator[Payloads]:
        """What is to be sealed, in runs of the same form."""
        random = self._session.surroundings.random
        seqs = count(berth.client_seq)
        for (form, auth_ref), some in groupby(drafts, lambda one: (one.form, self.auth_ref(one))):
            yield Payloads(
                form=form,
                limits=self._session.limits,
                label=berth.label,
                client_id=self._session.identity.client_id,
                prev_ack=berth.prev_ack,
                auth_ref=auth_ref,
                each=[
                    Payload(next(seqs), random(KEY_BYTES), one.body, one.attachments)
                    for one in some
                ],
            )

    def _signed(self, berth: Berth, event_id: int, draft: Draft, payload: SealedPayload) -> Sealed:
        identity, auth_ref = self._session.identity, self.auth_ref(draft)
        issued = msg.issue(
            identity.client,
            profile_id=draft.form.profile.profile_id(),
            label=berth.label,
            client_seq=berth.client_seq,
            prev_ack=berth.prev_ack,
            auth_ref=auth_ref,
            ciphertext=payload.ciphertext,
        )
        flight = Flight(
            event_id=event_id,
            label=berth.label,
            epoch=berth.epoch,
            client_id=identity.client_id,
            client_seq=berth.client_seq,
            prev_ack=berth.prev_ack,
            auth_ref=auth_ref,
            leaf=issued.leaf,
            coids=b"".join(attachment.coid(one) for one in payload.attachments),
            msg=issued.raw,
        )
        return Sealed(flight, payload.attachments)
