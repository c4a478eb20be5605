"""The ``veen`` command: one file for each group of commands, no logic of its own."""

from __future__ import annotations

import os
import sys
from typing import cast

import typer

from cli import hub_directory
from cli.console import USAGE, fail
from veen.errors import VeenError

# typer has its own copy of click; the base of its BadParameter is every misuse of a command.
_USAGE_ERROR = cast("type[typer.BadParameter]", typer.BadParameter.__base__)

app = typer.Typer(
    name="veen",
    help="A tamper-evident recorder and an air-gap bridge. Start with: veen hub start --help",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
app.add_typer(hub_directory.app, name="hub")


@app.command()
def version() -> None:
    """Print the version of the software and of the protocol it speaks."""
    typer.echo("veen 0.0.1 (VEEN protocol v0.0.1)")


def main() -> None:
    """The entry point: an expected failure is one clear line and an exit code, never a trace."""
    os.umask(0o077)
    try:
        sys.exit(app(standalone_mode=False))
    except _USAGE_ERROR as error:
        error.show()
        sys.exit(USAGE)
    except typer.Abort:
        sys.exit(USAGE)
    except VeenError as error:
        sys.exit(fail(error))


if __name__ == "__main__":
    main()
