"""``veen recorder``: record events, follow logs, and manage the recorder's streams."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import Final

import typer

app = typer.Typer(help="Record who did what, when and where, with proofs.", no_args_is_help=True)

_PARTS: Final = {
    "emit": "cli.recorder_emit:emit",
    "tail": "cli.recorder_emit:tail",
    "streams": "cli.recorder_streams:streams",
    "migrate": "cli.recorder_streams:migrate_app",
    "config": "cli.recorder_streams:config",
    "checkpoint": "cli.checkpoint:app",
    "replay": "cli.recorder_replay:replay",
    "index": "cli.recorder_index:app",
    "serve": "cli.recorder_serve:serve",
}
"""Commands and groups, in the order of the help."""

for _name, _place in _PARTS.items():
    _file, _, _attribute = _place.partition(":")
    if find_spec(_file) is not None:
        _command = getattr(import_module(_file), _attribute)
        if isinstance(_command, typer.Typer):
            app.add_typer(_command, name=_name)
        else:
            app.command(_name)(_command)
