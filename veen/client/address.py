"""Where a hub answers: an address, or the data directory of a hub that runs on this host."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote, urlsplit

from veen import layout
from veen.client.errors import Unreachable
from veen.errors import Malformed
from veen.hub_identity import HubIdentity

_URL_FILE = "run/hub.url"


@dataclass(frozen=True, slots=True)
class HubAddress:
    """``identity`` is there when the directory itself could be read, and then is the pin."""

    url: str
    identity: HubIdentity | None


def resolve(hub: str) -> HubAddress:
    """What ``--hub`` names: http(s)://…, a path, or file://…."""
    parts = urlsplit(hub)
    if parts.scheme in ("http", "https"):
        if not parts.hostname or parts.username or parts.query or parts.fragment:
            raise Malformed(f"{hub!r} is no address of a hub, like http://127.0.0.1:8080")
        return HubAddress(hub.rstrip("/"), None)
    if parts.scheme not in ("", "file"):
        raise Malformed(f"{hub!r}: a hub is an http(s) address or a data directory")
    return _on_this_host(Path(unquote(parts.path) if parts.scheme else hub))


def _on_this_host(root: Path) -> HubAddress:
    if not root.is_dir():
        raise Unreachable(
            f"there is no data directory {root}: --hub takes one, or an address like "
            "http://127.0.0.1:8080"
        )
    try:
        url = (root / _URL_FILE).read_text().strip(" \t\r\n")
    except FileNotFoundError:
        raise Unreachable(
            f"no hub runs on {root}; start one with: veen hub start --data-dir "
            f"{shlex.quote(str(root))}"
        ) from None
    identity = HubIdentity.decode((root / layout.IDENTITY).read_bytes())
    identity.verify((root / layout.IDENTITY_SIG).read_bytes())
    return HubAddress(url, identity)
