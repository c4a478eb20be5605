"""Whether files are the attachments that a message commits to, each in its place (spec 4.6)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from veen import attachment, seal
from veen.errors import Undecryptable
from veen.limits import Limits
from veen.msg import Msg
from veen.profile import Profile
from veen.seal import Opened


def verify_files(opened: Opened, files: Sequence[bytes], limits: Limits) -> list[bytes]:
    """The coid of each file, once all of them together give the header's att_root."""
    attachment.check_sizes(files, limits)
    sealed = [opened.keys.seal(index, one) for index, one in enumerate(files)]
    attachment.verify_root(opened.header.att_root, sealed, limits)
    return [attachment.coid(one) for one in sealed]


def open_with_any(keys: Iterable[bytes], msg: Msg, profile: Profile, limits: Limits) -> Opened:
    """The payload of a message, opened with the first key that does."""
    for private in keys:
        try:
            return seal.open_msg(private=private, msg=msg, profile=profile, limits=limits)
        except Undecryptable:
            continue
    raise Undecryptable("the message is not sealed to any key of this client")
