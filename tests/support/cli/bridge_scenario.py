"""The commands of the bridge: two zones, each with a gated hub, and media that go from one over."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from typing import Any

from support.cli.cli_binary import end_hub, veen
from zone.services import free_port

ORDERS, LOG = "record/app/orders", "bridge/online/log"
IMPORTED = f"import/{ORDERS}"
IMPORTS = "record/infrastructure/imports"
BLOCKED = 12
"""The exit code of an import that waits for approvals."""
LINE = {
    "event_type": "order.placed", "subject_id": "u:7", "origin": "shop", "payload": {"n": 1},
    "event_time": "2025-11-19T03:20:01.000Z",
}  # fmt: skip
READ_ALL = 'read = ["*"]\n'
ROLES = {
    "z1": {
        "admin": ("recorder_admin", READ_ALL),
        "bridge": ("bridge_online", f'read = ["{ORDERS}", "{LOG}"]\n'),
        "audit": ("audit_writer", f'write = ["{LOG}"]\n'),
    },
    "z2": {
        "reader": ("recorder_admin", READ_ALL),
        "bridge": ("bridge_offline", 'write = ["import/*"]\n'),
        "audit": ("audit_writer", 'write = ["bridge/offline/log"]\n'),
        "imports": ("recorder_producer", f'write = ["{IMPORTS}"]\n'),
    },
}
STREAMS = {
    "z1": (ORDERS, LOG),
    "z2": (IMPORTED, f"import/{LOG}", "bridge/offline/log", IMPORTS),
}
WRITERS: dict[str, dict[str, tuple[str, ...]]] = {
    "z1": {"shop": (ORDERS,), "audit": (LOG,)},
    "z2": {
        "bridge": (IMPORTED, f"import/{LOG}"),
        "audit": ("bridge/offline/log",),
        "imports": (IMPORTS,),
    },
}


def show_bridge(world: Any) -> None:
    """``world`` is the scenario's; whatever happens, no hub of ours remains."""
    try:
        hub_ids = {zone: _set_up(world, zone) for zone in STREAMS}
        _settings(world, hub_ids)
        _keys(world)
        _export(world)
        _import(world)
        _prove(world)
        _release(world)
        _unfreeze(world, hub_ids["z1"])
    finally:
        for zone in STREAMS:
            end_hub(world.folder, f"{zone}/hub")


def _set_up(world: Any, zone: str) -> str:
    """Identities, a hub that knows them, and what each may write."""
    (world.folder / zone).mkdir()
    world.urls = getattr(world, "urls", {}) | {zone: f"127.0.0.1:{free_port()}"}
    keys = {name: _identity(world, f"{zone}/{name}") for name in (*ROLES[zone], "issuer")}
    if zone == "z1":
        keys["shop"] = _identity(world, "z1/shop")
    text = f'listen = "{world.urls[zone]}"\nworkers = 1\n'
    text += f'issuers = ["{keys["issuer"]["id_sign_public"]}"]\n'
    text += "".join(f'[[streams]]\nname = "{item}"\n' for item in STREAMS[zone])
    for name, (role, more) in ROLES[zone].items():
        text += f'[[principals]]\nname = "{name}"\nrole = "{role}"\n{more}'
        text += f'public_key = "{keys[name]["client_id"]}"\n'
    (world.folder / zone / "hub.toml").write_text(text)
    at = ("--hub", f"{zone}/hub")
    world.do("hub", "start", "--data-dir", at[1], "--config", f"{zone}/hub.toml")
    for name, streams in WRITERS[zone].items():
        to = [word for stream in streams for word in ("--stream", stream)]
        who = ("--issuer", f"{zone}/issuer", "--subject", f"{zone}/{name}", "--ttl", "86400")
        world.do("cap", "issue", *who, *to, "--out", f"{zone}/{name}.cap")
        world.do("cap", "authorize", *at, "--cap", f"{zone}/{name}.cap")
    return str(json.loads(world.do("hub", "key", *at, "--json").out)["hub_id"])


def _identity(world: Any, name: str) -> dict[str, Any]:
    world.do("keygen", "--out", name, "--insecure-plain")
    document: dict[str, Any] = json.loads(world.do("id", "show", "--client", name, "--json").out)
    return document


def _settings(world: Any, hub_ids: dict[str, str]) -> None:
    """In each zone what its bridge and its recorder are told."""
    alice = _identity(world, "z2/alice")["client_id"]
    source = f'[[streams]]\nsource = "{ORDERS}"\n'
    more = {
        "z1": source,
        "z2": '[reader]\nclient = "reader"\nprincipal = "reader"\n'
        '[import_recorder]\nclient = "imports"\ncapability = "imports.cap"\n'
        f'{source}hub_id = "{hub_ids["z1"]}"\n'
        f'[[approvals]]\nprefix = "record/"\nneeded = 1\napprovers = ["{alice}"]\n',
    }
    granted = {"z1": "", "z2": 'capability = "bridge.cap"\n'}
    opener, actor = {"z1": "bridge", "z2": "reader"}, {"z1": "admin", "z2": "reader"}
    for zone, kind in (("z1", "online"), ("z2", "offline")):
        hub = f'[hub]\nurl = "http://{world.urls[zone]}"\nhub_id = "{hub_ids[zone]}"\n'
        reader = f'reader = "{opener[zone]}/identity_card.pub"\n'
        (world.folder / zone / "bridge.toml").write_text(
            f'zone = "{kind}"\nname = "plant-{zone}"\n{hub}'
            f'[bridge]\nclient = "bridge"\nprincipal = "bridge"\n{granted[zone]}'
            f'[audit]\nclient = "audit"\ncapability = "audit.cap"\n{reader}{more[zone]}'
        )
        (world.folder / zone / "recorder.toml").write_text(
            f'zone = "plant-{zone}"\n{hub}client = "{actor[zone]}"\n'
            f'principal = "{actor[zone]}"\n{reader}'
            f'[[streams]]\nname = "{ORDERS}"\nevent_types = ["order.placed"]\n'
        )


def _keys(world: Any) -> None:
    config = ("--config", "z1/bridge.toml")
    world.show(
        "bridge-keys-export-trust", "bridge", "keys", "export-trust", *config, "--out", "z2/trust"
    )
    world.show("bridge-keys-show", "bridge", "keys", "show", "--config", "z2/bridge.toml")
    world.show("bridge-keys-zone", "bridge", "keys", "zone", "--out", "z2/zone.key")
    spare = ("--trust", "z2/spare", "--operator", "bob")
    world.show("bridge-keys-pin", "bridge", "keys", "pin", "z2/trust", *spare)
    world.show(
        "bridge-keys-revoke", "bridge", "keys", "revoke", "11" * 32, *spare, "--reason", "case 12"
    )


def _export(world: Any) -> None:
    """The second medium has the audit log, which tells of the first."""
    config, recorder = ("--config", "z1/bridge.toml"), ("--config", "z1/recorder.toml")
    (world.folder / "z1" / "orders.jsonl").write_text(f"{json.dumps(LINE)}\n" * 3)
    who = ("--client", "z1/shop", "--cap", "z1/shop.cap")
    world.do("recorder", "emit", *recorder, *who, "--file", "z1/orders.jsonl")
    world.do("recorder", "checkpoint", "create", *recorder)
    world.show("bridge-status", "bridge", "status", *config)
    for medium in ("usb-1", "usb-2"):
        (world.folder / medium).mkdir()
    words = ("bridge", "export", *config, "--operator", "ann", "--medium-id", "STICK-1", "--medium")
    world.show("bridge-export", *words, "usb-1")
    world.do("recorder", "checkpoint", "create", *recorder)
    world.do(*words, "usb-2")
    world.show("bridge-inspect", "bridge", "inspect", "usb-1", "--events", "1")
    world.show("bridge-verify", "bridge", "verify", "usb-1", "usb-2", "--trust", "z2/trust")


def _import(world: Any) -> None:
    config = ("--config", "z2/bridge.toml")
    words = ("bridge", "import", *config, "--operator", "bob", "--medium")
    held = veen(*words, "usb-1", "--json", cwd=world.folder)
    assert held.code == BLOCKED, held
    bundle = json.loads(held.out)["carriers"][0]["bundle_id"]
    world.show("bridge-approve", "bridge", "approve", bundle, *config, "--client", "z2/alice")
    world.show("bridge-import", *words, "usb-2")
    world.show("bridge-status.offline", "bridge", "status", *config)
    world.show("bridge-receipt", "bridge", "receipt", bundle, *config)


def _unfreeze(world: Any, hub_id: str) -> None:
    """A stream that is frozen, as a fork would have left it."""
    ledger = sqlite3.connect(world.folder / "z2" / "import" / "ledger.db")
    with closing(ledger), ledger:
        values = (bytes.fromhex(hub_id), ORDERS, 2, bytes(32))
        ledger.execute("INSERT INTO frozen VALUES (?, ?, ?, ?)", values)
    words = ("bridge", "thaw", ORDERS, "--config", "z2/bridge.toml", "--operator", "bob")
    world.show("bridge-thaw", *words, "--reason", "case 12")


def _prove(world: Any) -> None:
    config = ("--config", "z2/bridge.toml")
    world.show("bridge-reconcile", "bridge", "reconcile", *config)
    world.show(
        "bridge-prove", "bridge", "prove", *config, "--online", "z1/bridge.toml",
        "--online-hub", "z1/hub.toml", "--offline-hub", "z2/hub.toml", "--event", f"{ORDERS}=2",
    )  # fmt: skip
    world.show(
        "recorder-index-imports", "recorder", "index", "imports", "--config", "z2/recorder.toml",
        "--stream", IMPORTED, "--trust", "z2/trust", "--index", "z2/index",
    )  # fmt: skip


def _release(world: Any) -> None:
    """A bundle came before its stream had a target, and is let out of quarantine once it has."""
    config, recorder = ("--config", "z2/bridge.toml"), ("--config", "z1/recorder.toml")
    who = ("--client", "z1/shop", "--cap", "z1/shop.cap")
    world.do("recorder", "emit", *recorder, *who, "--file", "z1/orders.jsonl")
    world.do("recorder", "checkpoint", "create", *recorder)
    (world.folder / "usb-3").mkdir()
    by = ("--operator", "ann", "--medium-id", "STICK-3", "--medium", "usb-3")
    world.do("bridge", "export", "--config", "z1/bridge.toml", *by)
    mapped = (world.folder / "z2" / "bridge.toml").read_text()
    unmapped = mapped.replace(f'source = "{ORDERS}"', 'source = "record/app/others"')
    (world.folder / "z2" / "unmapped.toml").write_text(unmapped)
    words = ("bridge", "import", "--config", "z2/unmapped.toml", "--medium", "usb-3", "--json")
    rows = json.loads(veen(*words, cwd=world.folder).out)["carriers"]
    (bundle,) = [row["bundle_id"] for row in rows if row["code"] == "UNMAPPED"]
    world.show(
        "bridge-release", "bridge", "release", bundle, *config, "--operator", "bob",
        "--reason", "stream was mapped",
    )  # fmt: skip
