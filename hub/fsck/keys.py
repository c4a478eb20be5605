"""The private keys of a hub, against its identity."""

from __future__ import annotations

from hub.storage.datadir import DataDir
from veen import sign
from veen.audit.report import Fault
from veen.audit.trust import TrustCheck
from veen.hub_identity import HubIdentity


def check_private_keys(datadir: DataDir, hub: HubIdentity, found: TrustCheck, hub_ts: int) -> None:
    """``hub_ts`` is the latest that the log has."""
    due = {f"hub-{key.key_id.hex()}.key": key for key in hub.hub_keys}
    for path in sorted(datadir.keys.iterdir()):
        name = f"keys/{path.name}"
        if path.name not in due:
            found.notes.append(f"{name}: not a key of this hub")
        elif not _is_key(path.read_bytes(), due[path.name].hub_pk):
            found.faults.append(Fault(name, 0, None, "is not the private key of its name", "KEY"))
        elif due[path.name].is_retired(hub_ts):
            what = "the seed of a key that has retired; the hub deletes it when it runs"
            found.notes.append(f"{name}: {what}")
    name = f"hub-{hub.current.key_id.hex()}.key"
    if not (datadir.keys / name).exists():
        what = "the current private key is not here; the hub cannot go on"
        found.notes.append(f"keys/{name}: {what}")


def _is_key(seed: bytes, public: bytes) -> bool:
    return len(seed) == 32 and sign.PrivateKey(seed).public == public
