"""``veen version`` and ``veen explain-error``: the versions, and the meaning of error codes."""

from __future__ import annotations

import platform
from importlib import metadata
from typing import Annotated, Final, NamedTuple

import typer

from cli.console import show
from veen.errors import Code, Failure
from veen.version import PROTOCOL, VERSION

FAILURES: Final = {
    Failure.SIZE_PREFILTER: "larger than max_msg_bytes, seen before anything was read",
    Failure.PREFILTER_REJECT: "refused before its signature was looked at",
    Failure.CBOR_INVALID: "not the one allowed encoding of a message",
    Failure.FIELD_SIZE: "a field of the message has a wrong size",
    Failure.VERSION: "the message is of another version",
    Failure.PROFILE: "the hub or the stream does not have the profile that the message names",
    Failure.PADDING: "bytes after the ciphertext's body that are not zero, or of a wrong number",
    Failure.CT_HASH: "ct_hash is not the hash of the ciphertext",
    Failure.ATT_ROOT: "att_root is not the root of the attachments; seen by who opens the header",
    Failure.SIG_INVALID: "the signature does not verify",
    Failure.CAP_MISSING: "the message names no capability, and the hub wants one",
    Failure.CAP_INVALID: "the capability is not known to the hub, or its issuer is not trusted",
    Failure.AUTH_REF: "the capability is for another client_id or another stream",
    Failure.CAP_TTL: "the capability has expired",
    Failure.CAP_RATE: "above the capability's rate",
    Failure.PREV_ACK: "prev_ack is above the head of the label, or went back",
    Failure.DUPLICATE: "this client_seq is in the log already; the detail has its receipt",
    Failure.CLIENT_SEQ: "client_seq leaves a gap, or is 0",
    Failure.EPOCH: "the label is of an epoch outside the hub's window",
}
FORMER: Final = {"E.PROFILE": Failure.PROFILE, "E.DUP": Failure.DUPLICATE}
"""Codes of earlier drafts, and their current codes."""


def version() -> None:
    """Show the version of the software and of the protocol.

    Example: veen version --json
    """
    show(
        {
            "version": VERSION,
            "protocol": PROTOCOL,
            "python": platform.python_version(),
            "libsodium": f"PyNaCl {metadata.version('pynacl')}",
        },
        f"veen {VERSION} (VEEN protocol v{PROTOCOL})",
    )


class Explanation(NamedTuple):
    meaning: str
    cause: str
    remedy: str


CODES: Final = {
    Code.FORMAT: Explanation(
        "The message is not valid in this version of the protocol.",
        "Another version, a profile that the stream does not have, or bytes altered in transit.",
        "Compare --epoch-sec and --pad-block with the stream's profile (veen hub status).",
    ),
    Code.SIZE: Explanation(
        "The message or one of its fields has a size that is not allowed.",
        "A body above max_body_bytes or a message above max_msg_bytes.",
        "Send smaller messages, or use attachments; veen hub status shows the limits.",
    ),
    Code.SIG: Explanation(
        "The signature of the message was not made by its client_id.",
        "Bytes altered in transit, or a damaged keystore.",
        "Send again; if it persists, open the identity with veen id show and compare client_id.",
    ),
    Code.CAP: Explanation(
        "The capability is missing, unknown to the hub, or not accepted by it.",
        "The token was never authorized at this hub, or its issuer is not trusted there.",
        "Run veen cap authorize, then send with --cap; the hub's issuers are in its settings.",
    ),
    Code.AUTH: Explanation(
        "The capability does not cover this request.",
        "Another subject or stream than it was issued for, or a client_id rotated since.",
        "Look at it with veen cap show, and have one issued for this client_id and stream.",
    ),
    Code.RATE: Explanation(
        "The rate limit of the capability is exceeded.",
        "More messages a second than the token allows; only accepted ones count.",
        "Wait as long as the hub says (retry_after), or have a token with a higher rate issued.",
    ),
    Code.SEQ: Explanation(
        "The message does not continue the sequence of this client in the label.",
        "A response was lost, or a client directory was copied or restored from a backup.",
        "Run veen resync for the stream; never use one client directory in two places.",
    ),
    Code.TIME: Explanation(
        "The message is too early or too late.",
        "A capability that has expired, or a label of an epoch that is over.",
        "Check the clock of this host; have the capability issued and authorized again.",
    ),
    Code.BAD_REQUEST: Explanation(
        "The request cannot be decoded.",
        "Another version of the software, or a proxy that alters requests.",
        "Compare veen version with the hub's server_version (veen hub status).",
    ),
    Code.UNAUTHORIZED: Explanation(
        "The request is not authenticated.",
        "No --principal or --token-file, or a token or key unknown to the hub.",
        "Read as a principal of the hub's policy: --principal NAME, or --token-file FILE.",
    ),
    Code.FORBIDDEN: Explanation(
        "The principal is not permitted to do this.",
        "The principal's read or write patterns do not cover the stream.",
        "Ask the operator of the hub for a pattern that covers it.",
    ),
    Code.NOT_FOUND: Explanation(
        "The hub has no such label, stream_seq, checkpoint or capability.",
        "A misspelt stream name, an empty stream, or entries removed by retention.",
        "Check --stream and --hub; checkpoints and proofs of pruned entries remain.",
    ),
    Code.CONFLICT: Explanation(
        "The request conflicts with the state of the hub.",
        "A stream that is registered with another profile.",
        "List the streams of the hub, and use the registered profile.",
    ),
    Code.LIMIT: Explanation(
        "The request is larger than the hub accepts.",
        "Too many messages or bytes in one request, or a capability that is too large.",
        "Send smaller requests; veen hub status shows the limits.",
    ),
    Code.UNAVAILABLE: Explanation(
        "The hub cannot do this now.",
        "It starts, stops, is overloaded, or its disk is full; a refused message is not logged.",
        "Retry later with veen outbox flush, which is idempotent.",
    ),
    Code.VERSION: Explanation(
        "The hub does not support this version of the protocol.",
        "Client and hub are of different releases.",
        "Compare veen version with veen hub profile, and upgrade the older one.",
    ),
}


def explain_error(
    code: Annotated[
        str, typer.Argument(metavar="CODE", help="Error code, like E.SEQ or E.SEQ/DUPLICATE.")
    ],
) -> None:
    """Explain an error code of a hub: meaning, cause and remedy.

    Example: veen explain-error E.SEQ/DUPLICATE
    """
    name = code.upper()
    failure = FORMER.get(name) or _failure(name)
    explained = failure.code if failure else _code(name)
    text = CODES[explained]
    now = f"{explained.value}/{failure.detail_enum}" if failure else explained.value
    document = {
        "code": name,
        **({"now": now} if name in FORMER else {}),
        **({"detail": FAILURES[failure]} if failure else {}),
        "meaning": text.meaning,
        "cause": text.cause,
        "remedy": text.remedy,
        "http_status": explained.http_status,
        "details": [
            f"{explained.value}/{entry.detail_enum}" for entry in Failure if entry.code is explained
        ],
    }
    show(document, _paragraph(name, now, failure, text))


def _paragraph(name: str, now: str, failure: Failure | None, text: Explanation) -> str:
    head = f"{name} is now {now}" if name in FORMER else name
    detail = f" Here: {FAILURES[failure]}." if failure else ""
    return f"{head}: {text.meaning}{detail} Usual cause: {text.cause} What to do: {text.remedy}"


def _failure(name: str) -> Failure | None:
    return next((item for item in Failure if f"{item.code.value}/{item.detail_enum}" == name), None)


def _code(name: str) -> Code:
    try:
        return Code(name)
    except ValueError:
        known = ", ".join([*(item.value for item in Code), *FORMER])
        raise typer.BadParameter(f"unknown code {name}: expected one of {known}.") from None
