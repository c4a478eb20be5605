"""The commands of ``veen``, each in a file that is loaded when the command is asked for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from importlib import import_module
from typing import Any, Final

import typer
from typer.core import TyperGroup

from cli.console import Manner, behave
from cli.conventions import adopt
from cli.extras import MissingExtra, checked

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
    try:
        with checked(f"veen {name}"):
            loaded = getattr(import_module(file), attribute)
    except MissingExtra as error:
        return _missing(name, error)
    around = typer.Typer(rich_markup_mode=None)
    if isinstance(loaded, typer.Typer):
        around.add_typer(loaded, name=name)
    else:
        around.command(name)(loaded)
    adopt(around)
    return typer.main.get_group(around).commands[name]


def _missing(name: str, error: MissingExtra) -> Any:
    """A command that is listed, and whatever its arguments are, says which extra it needs."""

    def fail(ctx: typer.Context) -> None:
        if "--json" in ctx.args:
            behave(Manner(json=True))
        raise error

    around = typer.Typer(rich_markup_mode=None)
    around.command(
        name,
        help=f"{str(error).partition(': ')[2].capitalize()} to have this command.",
        add_help_option=False,
        context_settings={"allow_extra_args": True, "ignore_unknown_options": True},
    )(fail)
    return typer.main.get_group(around).commands[name]
