"""Stage 3 of admission, its first part: the client's signature (spec 8.1)."""

from hub.admission.verified import Verified
from veen.errors import Failure, Rejected
from veen.msg import Msg


def signed(msg: Msg) -> Verified:
    if not msg.signature_is_valid():
        raise Rejected(Failure.SIG_INVALID, "sig is not the client's over this message")
    return Verified.of(msg)
