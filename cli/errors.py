"""Errors of a command: one line or one JSON object, and an exit code."""

from __future__ import annotations

import json
import re
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Final, cast

import typer

from cli.console import global_options, notice, printable
from cli.extras import MissingExtra
from recorder.anchor.anchors import AnchorUnavailable
from veen.client.transport import HubRefused, Unreachable
from veen.errors import Malformed, Rejected, Untrusted, VeenError
from veen.keystore.directory import IdentityExists, NoIdentity
from veen.keystore.sealed import PassphraseNeeded, WrongPassphrase
from veen.objects.port import StoreUnavailable

OK, USAGE, NETWORK, INTEGRITY, REFUSED, SELFTEST, UNPROVEN = range(7)
"""Exit codes: usage, network, what a hub said does not hold, refused, a failed self-test, and a
check in which nothing failed but evidence is absent."""

INTERRUPTED: Final = 130


class Unproven(VeenError):
    """Nothing is false, but evidence that a proof needs is absent."""


# typer vendors click; the base class of its BadParameter covers every usage error.
UsageError = cast("type[typer.BadParameter]", typer.BadParameter.__base__)
_EXIT_CODES: Final = (
    ((MissingExtra, NoIdentity, IdentityExists, PassphraseNeeded, OSError), USAGE),
    ((Unreachable, StoreUnavailable, AnchorUnavailable), NETWORK),
    (WrongPassphrase, REFUSED),
    ((Untrusted, Malformed), INTEGRITY),
    (Unproven, UNPROVEN),
    (VeenError, REFUSED),
)


def fail(error: VeenError | OSError) -> int:
    """Print an error; return its exit code."""
    code, detail = _code(error), _detail(error)
    _print_error(code, detail, f"{detail}{_advice(error)}")
    return next(exit_code for kinds, exit_code in _EXIT_CODES if isinstance(error, kinds))


def fail_usage(error: typer.BadParameter) -> int:
    """A usage error."""
    if error.message.startswith("Usage:"):
        typer.echo(error.message, err=True)
        return USAGE
    # A usage error of a command itself names no single option, and needs no prefix.
    is_own = type(error) is typer.BadParameter and error.param is None
    message = error.message if is_own else error.format_message()
    where = error.ctx.command_path if error.ctx is not None else "veen"
    _print_error("USAGE", message, f"{message.rstrip('.')} (see {where} --help)")
    return USAGE


@contextmanager
def stoppable(value: str) -> Iterator[None]:
    """Handle SIGTERM like Ctrl-C: a line of text, and the command ends by itself."""
    before = signal.signal(signal.SIGTERM, _interrupt)
    try:
        yield
    except KeyboardInterrupt:
        notice(value)
        raise
    finally:
        signal.signal(signal.SIGTERM, before)


def _interrupt(_signal: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def _print_error(code: str, detail: str, line: str) -> None:
    if global_options().json:
        document = {"ok": False, "code": code, "detail": detail}
        typer.echo(json.dumps(document, sort_keys=True, indent=1))
    else:
        typer.echo(f"veen: {printable(line)}", err=True)


def _code(error: VeenError | OSError) -> str:
    if isinstance(error, Rejected):
        return error.failure.code.value
    if isinstance(error, HubRefused):
        return error.code
    if isinstance(error, OSError):
        return "FILE"
    name = re.sub(r"(?<!^)(?=[A-Z])", "_", type(error).__name__).upper()
    return error.error_code or name


def _detail(error: VeenError | OSError) -> str:
    if isinstance(error, OSError):
        return f"{error.filename}: {error.strerror}" if error.filename else str(error)
    return "; ".join([str(error), *getattr(error, "__notes__", [])])


def _advice(error: VeenError | OSError) -> str:
    if isinstance(error, Rejected):
        return f" (veen explain-error {error.failure.code.value}/{error.failure.detail_enum})"
    return f" (veen explain-error {error.code})" if isinstance(error, HubRefused) else ""
