"""The commands of ``veen``, each in a file that is loaded when the command is asked for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from importlib import import_module
from typing import Any, Final

import typer
from typer.core import TyperGroup

from cli.conventions import adopt

_FILES: Final = {
    "hub": "cli.hub_checkpoint:app",
    "keygen": "cli.identity:keygen",
    "id": "cli.identity:app",
    "send": "cli.send:send",
    "outbox": "cli.outbox:app",
    "stream": "cli.stream:stream",
    "attachment": "cli.attachment:app",
    "cap": "cli.cap:app",
    "resync": "cli.state:resync",
    "verify-state": "cli.state:verify_state",
    "verify-receipt": "cli.state:verify_receipt",
    "export": "cli.portable:export",
    "import": "cli.portable:import_",
    "recorder": "cli.recorder:app",
    "anchor": "cli.anchor:app",
    "query": "cli.query:app",
    "bridge": "cli.bridge:app",
    "zone": "cli.zone:app",
    "demo": "cli.demo.command:demo",
    "archive": "cli.archive:app",
    "audit": "cli.audit:app",
    "fold": "cli.fold:fold",
    "snapshot": "cli.snapshot:app",
    "bench": "cli.bench:app",
    "selftest": "cli.selftest.command:app",
    "explain-error": "cli.explain:explain_error",
    "version": "cli.about:version",
}
"""In the order in which the help lists them."""


class Commands(TyperGroup):
    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        self.commands = _Loading()  # type: ignore[assignment]  # it is only ever read


class _Loading(Mapping[str, Any]):
    def __getitem__(self, name: str) -> Any:
        return _loaded(name)

    def __iter__(self) -> Iterator[str]:
        return iter(_FILES)

    def __len__(self) -> int:
        return len(_FILES)


@cache
def _loaded(name: str) -> Any:
    """A command or a group of them, which keeps to the conventions."""
    file, _, attribute = _FILES[name].partition(":")
    found = getattr(import_module(file), attribute)
    around = typer.Typer(rich_markup_mode=None)
    if isinstance(found, typer.Typer):
        around.add_typer(found, name=name)
    else:
        around.command(name)(found)
    adopt(around)
    return typer.main.get_group(around).commands[name]
