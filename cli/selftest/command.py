"""``veen selftest``: tests of the program against a hub of its own, which is removed afterwards."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Annotated, Final

import typer

from cli.console import global_options, show, show_text
from cli.errors import SELFTEST
from cli.options import retry_policy
from cli.selftest.samples import StepResult
from cli.selftest.suite import SUITES, Suite, names_of, results

app = typer.Typer(help="Test an installation against temporary hubs.", no_args_is_help=True)

_DEFAULT_SEED: Final = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    """The steps to run, and the random seed."""

    only: Annotated[
        list[str] | None,
        typer.Option("--only", metavar="NAME", help="Run only this step; repeatable."),
    ] = None
    seed: Annotated[
        int, typer.Option("--seed", min=0, metavar="N", help="Seed of the random numbers.")
    ] = _DEFAULT_SEED


CountOption = Annotated[
    int | None, typer.Option("--count", min=1, metavar="N", help="Cases per step.")
]


@app.command()
def core(options: RunOptions) -> None:
    """Test sending, capabilities, rejections, resync, epochs and keys.

    Example: veen selftest core --only send-and-receive
    """
    _run("core", options, None)


@app.command()
def props(options: RunOptions, count: CountOption = None) -> None:
    """Compare proofs, encodings and numbers with slower reference implementations.

    Example: veen selftest props --count 1000
    """
    _run("props", options, count)


@app.command()
def fuzz(options: RunOptions, count: CountOption = None) -> None:
    """Feed malformed bytes to every decoder and to a running hub.

    Example: veen selftest fuzz --count 1000 --seed 7
    """
    _run("fuzz", options, count)


@app.command()
def recorder(options: RunOptions) -> None:
    """Test recording, checkpoints, anchors, replay with proofs, and tampering.

    Example: veen selftest recorder --only tampering
    """
    _run("recorder", options, None)


@app.command()
def query(options: RunOptions) -> None:
    """Test a query service, and recompute its rows and hashes independently.

    Example: veen selftest query --only evidence-full
    """
    _run("query", options, None)


@app.command()
def bridge(options: RunOptions) -> None:
    """Test export, loss, damage, import, reconciliation, and the proofs J1 to K2.

    Example: veen selftest bridge --only claims
    """
    _run("bridge", options, None)


@app.command("all")
def everything(options: RunOptions, count: CountOption = None) -> None:
    """Run every suite; exit with 5 if a step fails.

    Example: veen selftest all --json
    """
    _run("all", options, count)


def _run(name: str, options: RunOptions, count: int | None) -> None:
    suites = SUITES if name == "all" else tuple(item for item in SUITES if item.name == name)
    expected = _requested(suites, options.only)
    value: list[StepResult] = []
    running = results(
        suites,
        expected,
        seed=options.seed,
        count=count,
        timeout_sec=retry_policy().timeout_sec,
        environment=os.environ,
        clock=time.monotonic,
    )
    # Closed at once when interrupted: what it has started must not wait for the garbage.
    with closing(running):
        for result in running:
            value.append(result)
            _show_step(result)
    _conclude(name, options.seed, value)


def _requested(suites: Sequence[Suite], only: list[str] | None) -> frozenset[str]:
    names = names_of(suites)
    unknown = sorted(set(only or ()) - names)
    if unknown:
        raise typer.BadParameter(f"unknown step {unknown[0]!r}; the steps are {_list(names)}")
    return frozenset(only) if only else names


def _list(names: frozenset[str]) -> str:
    return ", ".join(sorted(names))


def _show_step(result: StepResult) -> None:
    """Print the result of a step; a failed step is printed with --quiet too."""
    if global_options().json:
        return
    if result.ok:
        show_text([f"ok   {result.suite}/{result.name} seconds={result.seconds:.3f}"])
    else:
        typer.echo(f"FAIL {result.suite}/{result.name}: {result.detail}", err=True)


def _conclude(name: str, seed: int, results: list[StepResult]) -> None:
    failed = [f"{result.suite}/{result.name}" for result in results if not result.ok]
    detail = f"{len(failed)} of {len(results)} steps failed: {', '.join(failed)}"
    error = {"code": "SELFTEST", "detail": detail} if failed else {}
    document = {"suite": name, "seed": seed, "steps": [result.to_json() for result in results]}
    if global_options().json:
        show({"ok": not failed, **document, **error})
    elif failed:
        typer.echo(f"veen: {detail}", err=True)
    else:
        show_text(_summary(name, results))
    if failed:
        raise typer.Exit(SELFTEST)


def _summary(name: str, results: list[StepResult]) -> Iterator[str]:
    yield f"{name}: all {len(results)} steps passed"
