"""Index of what an offline zone imports, without an operator configuring each stream."""

from __future__ import annotations

import tomllib
from pathlib import Path

from bridge import settings as bridge_settings
from bridge.settings import BridgeZone
from bridge.trust import TrustStore
from recorder import settings as recorder_settings
from recorder.index import imports
from recorder.index.tables import IndexHome
from veen.system.config import is_zone


def take_up(config: Path) -> None:
    """Have the index of an offline zone follow every import stream of its bridge.

    The pinned hubs are those of the zone's current trust store; the process that follows the index
    rereads both. Nothing is done for settings other than a zone's, for a zone that imports nothing,
    and for a zone whose recorder has no reader_keys to open imports with.
    """
    if not _imports(config):
        return
    bridge, recorder = bridge_settings.load(config), recorder_settings.load(config)
    if bridge.zone is not BridgeZone.OFFLINE or recorder.hub.reader_keys is None:
        return
    home = IndexHome(recorder.index)
    known = imports.read_import(home)
    targets = [route.target for route in bridge.streams.routes]
    expected = known.joined(targets, TrustStore.read(bridge.trust).hubs)
    if expected != known:
        imports.store_import(home, expected)


def _imports(config: Path) -> bool:
    """Whether the file is that of a zone with a bridge; errors in it are reported by its loader."""
    try:
        document = tomllib.loads(config.read_text())
    except (OSError, ValueError):
        return False
    return is_zone(document) and "bridge" in document
