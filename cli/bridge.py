"""``veen bridge``: carry events to a zone without a network, and prove it."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import Final

import typer

app = typer.Typer(
    help="Carry events one way across an air gap, and detect every loss.",
    no_args_is_help=True,
)

_PARTS: Final = {
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
}
"""Commands and groups, in the order of the help."""

for _name, _place in _PARTS.items():
    _file, _, _attribute = _place.partition(":")
    _command = getattr(import_module(_file), _attribute, None) if find_spec(_file) else None
    if isinstance(_command, typer.Typer):
        app.add_typer(_command, name=_name)
    elif _command is not None:
        app.command(_name)(_command)
