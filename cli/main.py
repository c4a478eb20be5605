"""The ``veen`` command, from its words to its exit code."""

from __future__ import annotations

import os
import sys

import typer

import cli.quick_start  # noqa: F401 - before anything that imports httpx
from cli import interrupt
from cli.commands import Commands
from cli.console import Manner, behave, hanging_up
from cli.conventions import lead
from cli.failure import INTERRUPTED, OK, UsageError, fail, fail_usage
from veen.errors import VeenError

app = typer.Typer(
    name="veen",
    cls=Commands,
    help="Record events so that nobody can change, drop or reorder them unnoticed.",
    no_args_is_help=True,
    context_settings={"max_content_width": 100},
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
lead(app, 'veen send --hub ./hub --client ./me --stream core/main --body \'{"text": "hello"}\'')


def main() -> None:
    """The entry point: an expected failure is one clear line and an exit code, never a trace."""
    os.umask(0o077)
    interrupt.heed()
    code = _run()
    with hanging_up():
        sys.stdout.flush()
    sys.exit(code)


def _run() -> int:
    try:
        return app(standalone_mode=False) or OK
    except UsageError as error:
        # The options may not have been read yet.
        behave(Manner(json="--json" in sys.argv))
        return fail_usage(error)
    except typer.Abort:
        return INTERRUPTED
    except (VeenError, OSError) as error:
        return fail(error)


if __name__ == "__main__":
    main()
