"""HTTP workers of a hub with one thing broken: by its name, and how."""
# ruff: noqa: PLC0415, ARG005 - a process loads only what is broken in it

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from support.selftest.mutants.breaking import Everything, nothing, swap


def signature_off() -> None:
    from hub.admission import VerifiedMsg
    from hub.api import context

    swap(context, "signed", VerifiedMsg.of)


def ct_hash_off() -> None:
    from veen.msg import Msg

    swap(Msg, "ct_hash_matches", lambda self: True)


def prefilter_off() -> None:
    from hub.api import context

    swap(context, "prefilter", lambda raw, limits: raw)


def field_sizes_off() -> None:
    from hub import admission

    swap(admission, "check_ciphertext_sizes", nothing)


def version_ignored() -> None:
    from veen.wire.schema import VersionNumber

    swap(VersionNumber, "check", nothing)


def lax_cbor() -> None:
    """What any other reader would take is put into order and taken."""
    import cbor2

    from hub import admission
    from veen.errors import Rejected
    from veen.wire import cbor

    strict = admission._decode

    def lax(raw: bytes, limits: Any) -> Any:
        try:
            return strict(raw, limits)
        except Rejected as refusal:
            try:
                return strict(cbor.dump(cbor2.loads(raw)), limits)
            except Exception:  # noqa: BLE001 - a lax reader has many ways to fail
                raise refusal from None

    swap(admission, "_decode", lax)


def duplicates_taken() -> None:
    from hub.api import submit

    recall = submit._attach_first_receipt

    def taken(reader: Any, result: Any, refused: Any) -> None:
        recall(reader, result, refused)
        receipt = getattr(result.outcome, "receipt", None)
        if receipt is not None:
            object.__setattr__(result, "outcome", receipt)

    swap(submit, "_attach_first_receipt", taken)


def duplicates_without_receipt() -> None:
    from hub.api import submit

    swap(submit, "_attach_first_receipt", nothing)


def batch_as_a_whole() -> None:
    """One bad message spoils the batch."""
    from hub.api.context import Admission, SubmitBatch, SubmitResult
    from veen.errors import Rejected

    take = Admission.take

    def whole(self: Any, messages: Any) -> Any:
        refused = [item for item in map(self._check, messages) if isinstance(item, Rejected)]
        if not refused:
            return take(self, messages)
        return SubmitBatch([SubmitResult(len(raw), None, refused[0]) for raw in messages], 0, 0)

    swap(Admission, "take", whole)


def reads_open() -> None:
    from hub.api import context

    swap(
        context.Access, "viewer", lambda self, body: context.Viewer(None, self._names, self._reader)
    )


def hidden_entry() -> None:
    """A page keeps back a message now and then."""
    from hub.api.read import StreamPage

    items = StreamPage.items
    swap(
        StreamPage,
        "items",
        lambda self, *given, **named: (
            stream_item
            for stream_item in items(self, *given, **named)
            if stream_item.stream_seq % 4 != 2
        ),
    )


def no_metrics() -> None:
    from hub.api import health

    swap(health, "generate_latest", lambda registry: b"")


def crash_on_malformed() -> None:
    from hub import admission
    from veen.msg import Msg

    def careless(raw: bytes, _limits: Any) -> Any:
        try:
            return Msg.decode(raw)
        except ValueError as error:
            raise KeyError("nobody thought of this") from error

    swap(admission, "_decode", careless)


def die_on_malformed() -> None:
    from hub import admission
    from veen.msg import Msg

    def fragile(raw: bytes, _limits: Any) -> Any:
        try:
            return Msg.decode(raw)
        except ValueError:
            os._exit(139)

    swap(admission, "_decode", fragile)


def crash_on_bad_request() -> None:
    from hub.api.content import RequestBody

    swap(RequestBody, "envelope", lambda self, cls: self.parse(cls))


def crash_on_bad_query() -> None:
    from flask import request

    from hub.api import admin, read

    def careless(cls: Any) -> Any:
        return cls.from_json(dict(request.args))

    for module in (read, read, admin, admin):
        if hasattr(module, "query"):
            swap(module, "query", careless)


def any_profile_at_the_edge() -> None:
    from hub.admission import structural
    from hub.api import context

    profiles: Any = Everything()
    swap(context, "structural", lambda raw, _, limits: structural(raw, profiles, limits))


def wrong_expiry() -> None:
    from veen.captoken import CapToken

    swap(CapToken, "expires_at", lambda self, issued_at: issued_at)


MUTANTS: dict[str, Callable[[], None]] = {
    "signature off": signature_off,
    "ct_hash off": ct_hash_off,
    "prefilter off": prefilter_off,
    "field sizes off": field_sizes_off,
    "version ignored": version_ignored,
    "lax CBOR": lax_cbor,
    "duplicates taken": duplicates_taken,
    "duplicates without receipt": duplicates_without_receipt,
    "batch as a whole": batch_as_a_whole,
    "reads open": reads_open,
    "hidden entry": hidden_entry,
    "expiry told wrong": wrong_expiry,
    "no metrics": no_metrics,
    "crash on malformed": crash_on_malformed,
    "die on malformed": die_on_malformed,
    "crash on bad request": crash_on_bad_request,
    "crash on bad query": crash_on_bad_query,
    "any profile": any_profile_at_the_edge,
}
