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
from veen.errors import Rejected, VeenError

OK, USAGE, NETWORK, INTEGRITY, REFUSED, SELFTEST, UNPROVEN = range(7)
"""Exit codes: usage, network, what a hub said does not hold, refused, a failed self-test, and a
check in which nothing failed but evidence is absent."""

INTERRUPTED: Final = 130


class Unproven(VeenError):
    """Nothing is false, but evidence that a proof needs is absent."""


# typer vendors click; the base class of its BadParameter covers every usage error.
UsageError = cast("type[typer.BadParameter]", typer.BadParameter.__base__)
HUB_REFUSED: Final = "veen.client.transport.HubRefused"
EXIT_CODES: Final = (
    ("cli.extras.MissingExtra", USAGE),
    ("veen.keystore.directory.NoIdentity", USAGE),
    ("veen.keystore.directory.IdentityExists", USAGE),
    ("veen.keystore.sealed.PassphraseNeeded", USAGE),
    ("builtins.OSError", USAGE),
    ("veen.client.transport.Unreachable", NETWORK),
    ("veen.objects.port.StoreUnavailable", NETWORK),
    ("recorder.anchor.anchors.AnchorUnavailable", NETWORK),
    ("veen.keystore.sealed.WrongPassphrase", REFUSED),
    ("veen.errors.Untrusted", INTEGRITY),
    ("veen.errors.Malformed", INTEGRITY),
    ("cli.errors.Unproven", UNPROVEN),
    ("veen.errors.VeenError", REFUSED),
)
"""Errors by name, so that none of their modules is imported: the first that an error is."""


def fail(error: VeenError | OSError) -> int:
    """Print an error; return its exit code."""
    code, detail = _code(error), _detail(error)
    _print_error(code, detail, f"{detail}{_advice(error)}")
    return next(exit_code for name, exit_code in EXIT_CODES if _is_a(error, name))


def _is_a(error: Exception, name: str) -> bool:
    return any(f"{kind.__module__}.{kind.__qualname__}" == name for kind in type(error).__mro__)


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
    if _is_a(error, HUB_REFUSED):
        return _hub_code(error)
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
    return f" (veen explain-error {_hub_code(error)})" if _is_a(error, HUB_REFUSED) else ""


def _hub_code(error: Exception) -> str:
    return str(getattr(error, "code"))  # noqa: B009 - of a class that is not imported here
