"""``veen hub``: run, inspect and verify a hub."""

from __future__ import annotations

from cli.conventions import group_of

app = group_of(
    "Run, inspect and verify a hub.",
    {
        "start": "cli.hub:start",
        "stop": "cli.hub:stop",
        "status": "cli.hub_status:status",
        "key": "cli.hub_status:key",
        "profile": "cli.hub_status:profile",
        "health": "cli.hub_status:health",
        "metrics": "cli.hub_metrics:metrics",
        "tls-info": "cli.hub_status:tls_info",
        "verify": "cli.hub_admin:verify",
        "rebuild": "cli.hub_admin:rebuild",
        "retention": "cli.hub_admin:retain",
        "rotate-key": "cli.hub_admin:rotate_key",
        "checkpoint": "cli.hub_checkpoint:checkpoint",
        "verify-rotation": "cli.hub_checkpoint:verify_rotation",
    },
)
