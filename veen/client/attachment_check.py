"""Whether files are the attachments that a message commits to, each in its place (spec 4.6)."""

from __future__ import annotations

from collections.abc import Sequence

from veen import attachment
from veen.limits import Limits
from veen.seal import Opened


def verify_files(opened: Opened, files: Sequence[bytes], limits: Limits) -> list[bytes]:
    """The coid of each file, once all of them together give the header's att_root."""
    attachment.check_sizes(files, limits)
    sealed = [opened.keys.seal(index, one) for index, one in enumerate(files)]
    attachment.verify_root(opened.header.att_root, sealed, limits)
    return [attachment.coid(one) for one in sealed]
