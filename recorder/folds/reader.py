"""Who reads for a fold: the keys that open payloads, under the profile of a stream."""

from __future__ import annotations

from collections.abc import Sequence

from veen import hpke, seal
from veen.digest import ht
from veen.errors import Unopenable
from veen.limits import Limits
from veen.msg import Msg
from veen.overlay.event import Event
from veen.profile import Profile
from veen.receipt import Receipt
from veen.seal import Opened


class FoldReader:
    def __init__(self, keys: Sequence[bytes], profile: Profile, limits: Limits) -> None:
        self._keys = list(keys)
        self._profile = profile
        self._limits = limits

    def scope(self) -> bytes:
        """A name for what these keys open: with others, a fold can come to something else."""
        publics = sorted(hpke.public_key(one) for one in self._keys)
        return ht("veen/fold-reader", self._profile.profile_id(), *publics)

    def event(self, msg: Msg, receipt: Receipt) -> Event:
        """A verified message as overlays see it; what is not for us, or is junk, stays closed."""
        place = {"stream_seq": receipt.stream_seq, "hub_ts": receipt.hub_ts}
        opened = self._open(msg)
        if opened is None:
            return Event.unopened(**place, client_id=msg.client_id)
        return Event(
            **place, client_id=msg.client_id, schema=opened.header.schema, body=opened.body
        )

    def _open(self, msg: Msg) -> Opened | None:
        try:
            return seal.open_with_any(self._keys, msg, self._profile, self._limits)
        except Unopenable:
            return None
