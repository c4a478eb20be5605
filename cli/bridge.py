"""``veen bridge``: carry events to a zone without a network, and prove it."""

from __future__ import annotations

from cli.conventions import group_of

app = group_of(
    "Carry events one way across an air gap, and detect every loss.",
    {
        "export": "cli.bridge_export:export",
        "inspect": "cli.bridge_export:inspect",
        "verify": "cli.bridge_verify:verify",
        "import": "cli.bridge_import:import_",
        "approve": "cli.bridge_import:approve",
        "release": "cli.bridge_import:release",
        "thaw": "cli.bridge_status:unfreeze",
        "status": "cli.bridge_status:status",
        "reconcile": "cli.bridge_reconcile:reconcile",
        "prove": "cli.bridge_prove:prove",
        "receipt": "cli.bridge_import:receipt",
        "keys": "cli.bridge_keys:app",
    },
)
