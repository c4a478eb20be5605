"""The seeds of retired hub keys, deleted once nothing is left for them to sign (spec 8.4)."""

from __future__ import annotations

from hub.storage.log import HubLog


def delete_retired_seeds(log: HubLog, now: int) -> None:
    """Delete the seeds of keys that retired before ``now``.

    An epoch that ended in a key's time is closed by that key, maybe later: it stays until then.
    """
    if not log.keys.holds_older:
        return
    needed = set()
    for label_log in log.labels():
        stream = log.registry.stream(label_log.stream_id) if label_log.stream_id else None
        if stream is not None and stream.profile.epoch_sec:
            for hub_ts in (0, label_log.last_ts):
                needed.add(log.keys.signer(label_log.epoch, stream.profile, hub_ts))
    log.keys.delete_retired(log.datadir, now, needed)
