"""The ``veen`` command: its global options, errors and exit codes.

The commands are those of the table of ``cli/table.py``, which imports the module of a command
when the command runs.
"""

from __future__ import annotations

import os
import sys
from typing import Any, Final

import typer

import cli.quick_start  # noqa: F401 - before anything that imports httpx
from cli import table
from cli.coercion import PlainGroup
from cli.console import GlobalOptions, apply_global_options, broken_pipe_ignored
from cli.conventions import EXAMPLE, with_options
from cli.errors import INTERRUPTED, OK, UsageError, fail, fail_usage
from veen.errors import VeenError
from veen.system.signals import handle_interrupts

_HELP: Final = "Record events so that nobody can change, drop or reorder them unnoticed."
_FIRST: Final = (
    'veen send --hub ./hub --client ./me --stream core/main --body \'{"text": "hello"}\''
)


class Commands(PlainGroup):
    """The commands of ``veen``."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        self.commands = table.TopRows(table.read())  # type: ignore[assignment]  # only read


app = typer.Typer(
    name="veen",
    cls=Commands,
    help=f"{_HELP}{EXAMPLE}{_FIRST}",
    no_args_is_help=True,
    context_settings={"max_content_width": 100},
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)


@app.callback()
@with_options
def _no_action() -> None:
    """The program does nothing without a command."""


def main() -> None:
    """The entry point: an expected error is one line and an exit code, never a traceback."""
    os.umask(0o077)
    handle_interrupts()
    code = _run()
    with broken_pipe_ignored():
        sys.stdout.flush()
    sys.exit(code)


def _run() -> int:
    try:
        return app(standalone_mode=False) or OK
    except UsageError as error:
        # The options may not be parsed yet.
        apply_global_options(GlobalOptions(json="--json" in sys.argv))
        return fail_usage(error)
    except typer.Abort:
        return INTERRUPTED
    except (VeenError, OSError) as error:
        return fail(error)


if __name__ == "__main__":
    main()
