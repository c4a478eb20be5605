"""Parameters of an audit that the log does not hold: the hub's limits and configured streams.

{"limits": {"max_checkpoint_interval": 1024},
 "streams": [{"name": "record/line-1", "epoch_sec": 3600, "pad_block": 256}],
 "acknowledged": {"<label>": 4711}}
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from veen.audit.context import Context, Depth, begin
from veen.errors import Malformed
from veen.hub_identity import HubIdentity
from veen.label import Profile
from veen.limits import BadLimit, Limits
from veen.log.entry import StreamRecord
from veen.wire import canonical_json


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditTerms:
    """Limits and streams of a hub, and the last acknowledged position of each label."""

    limits: Limits = field(default_factory=Limits)
    streams: tuple[StreamRecord, ...] = ()
    acknowledged: Mapping[bytes, int] = field(default_factory=dict)
    """For a data directory: the last stream_seq of each label in its index."""

    def context(self, hub: HubIdentity, depth: Depth) -> Context:
        profiles = tuple(stream.profile for stream in self.streams)
        return begin(
            hub=hub, limits=self.limits, profiles=profiles, streams=self.streams, depth=depth
        )

    def to_json(self) -> bytes:
        streams = [
            {
                "name": stream.name,
                "epoch_sec": stream.profile.epoch_sec,
                "pad_block": stream.profile.pad_block,
            }
            for stream in self.streams
        ]
        acknowledged = {label.hex(): upto for label, upto in self.acknowledged.items()}
        return canonical_json.encode(
            {"limits": asdict(self.limits), "streams": streams, "acknowledged": acknowledged}
        )


def read_terms(path: Path | None) -> AuditTerms:
    """Read terms from a file; without a file, the defaults of a hub that configures nothing."""
    return AuditTerms() if path is None else parse_terms(path.read_bytes())


def parse_terms(raw: bytes) -> AuditTerms:
    try:
        document = json.loads(raw)
        unknown = sorted(set(document) - {"limits", "streams", "acknowledged"})
        if unknown:
            raise Malformed(f"unknown key {unknown[0]!r}; expected limits, streams or acknowledged")
        return AuditTerms(
            limits=Limits(**document.get("limits", {})),
            streams=tuple(_stream(stream) for stream in document.get("streams", ())),
            acknowledged={
                bytes.fromhex(k): int(v) for k, v in document.get("acknowledged", {}).items()
            },
        )
    except (ValueError, TypeError, KeyError, AttributeError, BadLimit) as error:
        raise Malformed(f"terms of an audit: {error}") from error


def _stream(document: Mapping[str, Any]) -> StreamRecord:
    profile = {key: value for key, value in document.items() if key != "name"}
    record = StreamRecord(name=document["name"], profile=Profile(**profile))
    return StreamRecord.decode(record.encode())
