"""The metadata of an event against the event itself: what its signer and its hub say, and, where
the body is disclosed, what the body says (AGB0 4.4).
"""

from __future__ import annotations

from bridge.bundle import BundleEvent, Metadata
from bridge.refusal import Fault, Refused
from veen import cbor, seal
from veen.errors import Malformed, Untrusted
from veen.msg import Msg
from veen.profile import DEFAULT_PROFILE
from veen.receipt import Receipt
from veen.record_event import RecordEvent


def wrong_metadata(event: BundleEvent, msg: Msg, receipt: Receipt) -> Refused | None:
    """What is wrong with the metadata of an event that is at its place, if anything is.

    Principal and hub time are always known; the rest only where the body can be opened.
    """
    told, seq = event.metadata, receipt.stream_seq
    if told is None and event.body_key is None:
        return None
    if told is not None and told.principal_id != msg.client_id:
        return Refused(Fault.METADATA, "principal_id is not the client that signed", seq=seq)
    if told is not None and told.hub_commit_time != receipt.hub_ts:
        return Refused(Fault.METADATA, "hub_commit_time is not that of the receipt", seq=seq)
    if event.body_key is None:
        return None
    try:
        body = seal.open_body(body_key=event.body_key, msg=msg, profile=DEFAULT_PROFILE)
        if told is None or _is_around(body, told) or _says(body, told, receipt):
            return None
    except (Malformed, Untrusted) as error:
        return Refused(Fault.METADATA, f"the body: {error}", seq=seq)
    return Refused(Fault.METADATA, "the metadata is not what the body says", seq=seq)


def _says(body: bytes, told: Metadata, receipt: Receipt) -> bool:
    return told == Metadata.of(RecordEvent.decode(body), receipt)


def _is_around(body: bytes, told: Metadata) -> bool:
    """Whether the body is the encoding of just these fields around a payload.

    The same answer as that of decoding the body when it is yes, at a fraction of the cost.
    """
    before = cbor.dump({"origin": told.origin, "payload": 0})[1:-1]
    after = cbor.dump(
        {
            "event_time": told.event_time,
            "event_type": told.event_type,
            "subject_id": told.subject_id,
            "principal_id": told.principal_id,
        }
    )[1:]
    if not (body.startswith(b"\xa6" + before) and body.endswith(after)):
        return False
    return cbor.skip(body, 1 + len(before)) == len(body) - len(after)
