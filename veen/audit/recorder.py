"""Recorder checkpoints against the log that they speak of, and against each other (SDR0 3.2.4)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from veen import layout
from veen.audit.findings import Read
from veen.audit.joints import LabelFindings
from veen.audit.report import Fault
from veen.checkpoint import Checkpoint
from veen.errors import Malformed, Untrusted
from veen.hub_identity import HubIdentity
from veen.label import label, routing_key
from veen.layout import RecorderName
from veen.recorder_checkpoint import RecorderCheckpoint, StreamEnd

_CODE: Final = "RECORDER"


def check_recorder(
    names: Sequence[str], read: Read, hub: HubIdentity, labels: Iterable[LabelFindings]
) -> Iterator[Fault]:
    """Each document by itself, then that it follows the last sound one before it."""
    roots = {one.label: one.roots for one in labels} if names else {}
    check = _Check(read, hub, roots)
    last: RecorderCheckpoint | None = None
    for name in sorted(names):
        found = check.document(name)
        if isinstance(found, Fault):
            yield found
            continue
        try:
            if last is not None:
                found.verify_follows(last)
        except Untrusted as error:
            yield Fault(name, 0, None, str(error), _CODE)
            continue
        last = found
        yield from check.ends(name, found)


@dataclass(frozen=True, slots=True)
class _Check:
    read: Read
    hub: HubIdentity
    roots: Mapping[bytes, Mapping[int, bytes]]

    def document(self, name: str) -> RecorderCheckpoint | Fault:
        raw = self.read(name)
        if raw is None:
            return Fault(name, 0, None, "the file is missing", "MISSING")
        try:
            found = RecorderCheckpoint.decode(raw)
            found.verify(self.hub)
        except (Malformed, Untrusted) as error:
            return Fault(name, 0, None, str(error), _CODE)
        due = RecorderName.of(found.created_at, found.checkpoint_id)
        if layout.parse_recorder_checkpoint(name) != due:
            return Fault(name, 0, None, "holds another document than its name says", _CODE)
        return found

    def ends(self, name: str, document: RecorderCheckpoint) -> Iterator[Fault]:
        """A root that the log does not have at that size, or a checkpoint that is not there."""
        routing = routing_key(self.hub.hub_id)
        for stream, end in zip(document.names, document.ends, strict=True):
            of = label(routing, end.stream_id, 0)
            if end.last_seq and not self._holds(of, end):
                what = f"the log has no checkpoint of {stream} with this root at {end.last_seq}"
                yield Fault(name, 0, end.last_seq, what, _CODE)

    def _holds(self, of: bytes, end: StreamEnd) -> bool:
        """Where a fault hides the log's own root, the checkpoint's word is taken for it."""
        root = self.roots.get(of, {}).get(end.last_seq)
        if root is None:
            raw = self.read(layout.checkpoint(of, end.last_seq))
            with suppress(Malformed):
                root = None if raw is None else Checkpoint.decode(raw).mmr_root
        return root == end.mmr_root
