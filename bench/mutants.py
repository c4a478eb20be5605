"""Run mutation tests with mutmut and list the mutants that no test kills.

python bench/mutants.py                              every file of [tool.mutmut]
python bench/mutants.py 'veen.proofs*'               mutants whose names match
python bench/mutants.py --report                     the results of the last run, without a run

A mutant that changes only the text of an error message is counted by itself: the tests compare
the class and code of an error, not its wording. Exits with 1 when fewer than 90 percent of the
others are killed. The mutated tree is mutants/; mutmut runs a mutant again when its function
changed.
"""

from __future__ import annotations

import argparse
import ast
import json
import subprocess
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

ROOT = Path(__file__).parents[1]
LEAST_PERCENT = 90
# mutmut's own exit codes of a mutant: 0 survived; 1 and 3 a test failed; 24, -24, 36,
# 152 and 255 the time limit; 33 no test passes through the function; None not run yet.
_NO_TESTS = 33
_KILLED = frozenset({1, 3, 24, -24, 36, 152, 255})


@dataclass(frozen=True, slots=True)
class Mutant:
    """One change of one function: its name, what became of it, and both sources."""

    name: str
    exit_code: int | None
    original: ast.stmt
    changed: ast.stmt

    @property
    def is_killed(self) -> bool:
        return self.exit_code in _KILLED

    @property
    def is_text(self) -> bool:
        """Whether nothing changed but the text of an error that is raised."""
        return _comparable(self.original) == _comparable(self.changed)

    def difference(self) -> str:
        """The first line that differs, before and after."""
        before, after = _lines(self.original), _lines(self.changed)
        pairs = (pair for pair in zip(before, after, strict=False) if pair[0] != pair[1])
        old, new = next(pairs, ("", ""))
        return f"{old.strip()}  ->  {new.strip()}"


class _WithoutTexts(ast.NodeTransformer):
    """Replaces the message of every exception that is raised by the same text."""

    def visit_Raise(self, node: ast.Raise) -> ast.Raise:
        if isinstance(node.exc, ast.Call):
            node.exc.args = [_plain(argument) for argument in node.exc.args]
        return node


def _plain(argument: ast.expr) -> ast.expr:
    """Only what can be a message: a text with a space, an f-string, or None in its place."""
    is_message = isinstance(argument, ast.JoinedStr) or (
        isinstance(argument, ast.Constant)
        and (argument.value is None or " " in str(argument.value))
    )
    return ast.Constant("message") if is_message else argument


def _comparable(function: ast.stmt) -> str:
    return "\n".join(_lines(_WithoutTexts().visit(ast.parse(ast.unparse(function)))))


def _lines(node: ast.AST) -> list[str]:
    """The source without its first line, which has the name that mutmut gave it."""
    lines = ast.unparse(node).splitlines()
    return [line for line in lines if not line.strip().startswith(("def ", "async def "))]


def read_mutants(folder: Path) -> Iterator[Mutant]:
    """The mutants of a tree that mutmut has made, with the results that it has so far."""
    for meta in sorted(folder.rglob("*.py.meta")):
        results = json.loads(meta.read_text())["exit_code_by_key"]
        functions = _functions(meta.with_suffix(""))
        for name, exit_code in results.items():
            local = name.rsplit(".", 1)[1]
            original = functions[f"{local.rpartition('__mutmut_')[0]}__mutmut_orig"]
            yield Mutant(name, exit_code, original, functions[local])


def _functions(file: Path) -> dict[str, ast.stmt]:
    return {
        node.name: node
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }


def report(mutants: Iterable[Mutant]) -> tuple[str, bool]:
    """The rates and the survivors as text, and whether enough were killed."""
    run = [mutant for mutant in mutants if mutant.exit_code is not None]
    killed = [mutant for mutant in run if mutant.is_killed]
    survivors = [mutant for mutant in run if not mutant.is_killed]
    texts = [mutant for mutant in survivors if mutant.is_text]
    others = [mutant for mutant in survivors if not mutant.is_text]
    rate = 100 * len(killed) / max(1, len(killed) + len(others))
    summary = (
        f"{len(run)} mutants, {len(killed)} killed, {len(texts)} survived as message texts, "
        f"{len(others)} survived otherwise: {rate:.1f} % killed without message texts"
    )
    lines = [summary]
    for mutant in others:
        reason = " (no test)" if mutant.exit_code == _NO_TESTS else ""
        lines.append(f"{mutant.name}{reason}: {mutant.difference()}")
    return "\n".join(lines), rate >= LEAST_PERCENT


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("names", nargs="*", help="patterns of mutant names, as mutmut takes them")
    parser.add_argument("--report", action="store_true", help="report without running")
    parser.add_argument("--processes", type=int, default=2, help="mutants at a time")
    options = parser.parse_args()
    if not options.report:
        command = [
            str(Path(sys.executable).with_name("mutmut")), "run",
            "--max-children", str(options.processes), *options.names,
        ]  # fmt: skip
        subprocess.run(command, cwd=ROOT, check=True)
    patterns = options.names or ["*"]
    chosen = (
        mutant
        for mutant in read_mutants(ROOT / "mutants")
        if any(fnmatchcase(mutant.name, pattern) for pattern in patterns)
    )
    text, is_enough = report(chosen)
    print(text)
    return 0 if is_enough else 1


if __name__ == "__main__":
    sys.exit(main())
