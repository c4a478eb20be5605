"""Run mutation tests with mutmut, file by file, and list the mutants that no test kills.

python bench/mutants.py                      every target of bench/mutants.toml
python bench/mutants.py bundle package       some of them
python bench/mutants.py --report             the results of the last run, without a run

Each target has a working directory below mutants/, in which mutmut changes a copy of the tree and
runs the tests that pass through the changed function. A second run tries again the mutants that
survived and those of functions that changed; remove mutants/ to begin anew.

Texts for people are not mutated where a line has nothing else, and a mutant that changes nothing
but such a text is counted by itself: the tests compare the class, code and place of an error, not
its wording. Exits with 1 when fewer than 90 percent of the others are killed in any file.
"""

from __future__ import annotations

import argparse
import ast
import json
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
WORK = ROOT / "mutants"
LEAST_PERCENT = 90
MUTATED = ("veen", "hub", "recorder", "bridge")
COPIED = ("zone", "spark_jobs", "cli", "dags", "plugins", "docs", "tests", "pyproject.toml")
# A mutant starts from a process in which tests were collected and none was run: some of what is
# mutated is computed once for a process. The time limit allows for a busy machine.
PROCESSES = ("process_isolation = forkserver", "timeout_constant = 4")
# The check for unraisable exceptions collects garbage twice, half of the time of a short session.
PYTEST = ("-p", "no:xdist", "-p", "no:unraisableexception", "-m", "not long")
# Lines that only have the text of an error: a mutant there would cost a whole run of its tests.
TEXT_LINES = (r'raise \w+\(f?"', r'^\s*f?"[^"]* [^"]*"\)?,?$')
# mutmut's own exit codes of a mutant: 0 survived; 1 and 3 a test failed; 24, -24, 36 and
# 152 the time limit; 33 no test passes through the function; None not run yet. With any other,
# 255 for example, pytest did not run the tests: that is no kill. A backslash in the name of a
# test does that, which pytest doubles in the second session of a process.
_NO_TESTS = 33
_KILLED = frozenset({1, 3, 24, -24, 36, 152})


@dataclass(frozen=True, slots=True)
class Target:
    """Files that are mutated together, and the tests that judge the mutants."""

    name: str
    files: Sequence[str]
    tests: Sequence[str]

    @property
    def directory(self) -> Path:
        return WORK / self.name

    def config(self) -> str:
        """The setup.cfg that mutmut reads."""
        lists = {
            "source_paths": MUTATED,
            "only_mutate": self.files,
            "also_copy": COPIED,
            "do_not_mutate_patterns": TEXT_LINES,
            "pytest_add_cli_args": PYTEST,
            "pytest_add_cli_args_test_selection": self.tests,
        }
        lines = ["[mutmut]", *PROCESSES, "use_git_change_detection = false"]
        for key, values in lists.items():
            lines += [f"{key} =", *(f"  {value}" for value in values)]
        return "\n".join(lines) + "\n"


@dataclass(frozen=True, slots=True)
class Mutant:
    """One change of one function: its file and name, what became of it, and both sources."""

    file: str
    name: str
    exit_code: int | None
    original: ast.stmt
    changed: ast.stmt

    @property
    def is_killed(self) -> bool:
        return self.exit_code in _KILLED

    @property
    def is_text(self) -> bool:
        """Whether nothing changed but a text for people."""
        return _comparable(self.original) == _comparable(self.changed)

    @property
    def reason(self) -> str:
        """Why it survived, if not because all tests passed."""
        if self.exit_code == 0:
            return ""
        return " (no test)" if self.exit_code == _NO_TESTS else " (the tests did not run)"

    def difference(self) -> str:
        """What differs in the first line that does, before and after, with a few words around."""
        before, after = _lines(self.original), _lines(self.changed)
        pairs = (pair for pair in zip(before, after, strict=False) if pair[0] != pair[1])
        old, new = next(pairs, ("", ""))
        start = _common(old, new)
        end = _common(old[start:][::-1], new[start:][::-1])
        sides = (side[max(0, start - 40) : len(side) - end + 20].strip() for side in (old, new))
        return "  ->  ".join(sides)


def _common(first: str, second: str) -> int:
    """How many characters two texts have in common at their beginning."""
    pairs = enumerate(zip(first, second, strict=False))
    return next((at for at, (a, b) in pairs if a != b), min(len(first), len(second)))


class _WithoutTexts(ast.NodeTransformer):
    """Replaces texts for people by the same text.

    They are a string with a space in it, wherever it is; and as an argument of a class, which is
    that of an error, an f-string, str(error), or None in place of one.
    """

    def visit_Call(self, node: ast.Call) -> ast.AST:
        if isinstance(node.func, ast.Name) and node.func.id[:1].isupper():
            node.args = [_plain(argument) for argument in node.args]
        return self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> ast.Constant:
        is_text = isinstance(node.value, str) and " " in node.value
        return ast.Constant("message") if is_text else node


def _plain(argument: ast.expr) -> ast.expr:
    is_message = (
        isinstance(argument, ast.JoinedStr)
        or (isinstance(argument, ast.Constant) and argument.value is None)
        or (isinstance(argument, ast.Call) and ast.unparse(argument.func) == "str")
    )
    return ast.Constant("message") if is_message else argument


def _comparable(function: ast.stmt) -> str:
    return "\n".join(_lines(_WithoutTexts().visit(ast.parse(ast.unparse(function)))))


def _lines(node: ast.AST) -> list[str]:
    """The source without its first line, which has the name that mutmut gave it."""
    lines = ast.unparse(node).splitlines()
    return [line for line in lines if not line.strip().startswith(("def ", "async def "))]


def read_targets(file: Path) -> list[Target]:
    document = tomllib.loads(file.read_text())
    return [Target(name, item["files"], item["tests"]) for name, item in document.items()]


def run(target: Target, processes: int) -> None:
    """Run mutmut in the working directory of a target."""
    target.directory.mkdir(parents=True, exist_ok=True)
    for name in (*MUTATED, *COPIED):
        link = target.directory / name
        if not link.exists():
            link.symlink_to(ROOT / name)
    (target.directory / "setup.cfg").write_text(target.config())
    for meta in metas(target):
        forget_survivors(meta)
    mutmut = str(Path(sys.executable).with_name("mutmut"))
    command = [mutmut, "run", "--max-children", str(processes)]
    subprocess.run(command, cwd=target.directory, check=True)


def metas(target: Target) -> list[Path]:
    """mutmut's files of results, one beside each file that it changed."""
    return sorted((target.directory / "mutants").rglob("*.py.meta"))


def forget_survivors(meta: Path) -> None:
    """Have mutmut try a survivor again: there may be a new test."""
    document = json.loads(meta.read_text())
    results = document["exit_code_by_key"]
    document["exit_code_by_key"] = {
        name: exit_code if exit_code in _KILLED else None for name, exit_code in results.items()
    }
    meta.write_text(json.dumps(document))


def read_mutants(target: Target) -> Iterator[Mutant]:
    """The mutants that have been run."""
    for meta in metas(target):
        changed = meta.with_suffix("")
        functions = _functions(changed)
        file = str(changed.relative_to(target.directory / "mutants"))
        for name, exit_code in json.loads(meta.read_text())["exit_code_by_key"].items():
            local = name.rsplit(".", 1)[1]
            original = functions[f"{local.rpartition('__mutmut_')[0]}__mutmut_orig"]
            if exit_code is not None:
                yield Mutant(file, name, exit_code, original, functions[local])


def _functions(file: Path) -> dict[str, ast.stmt]:
    return {
        node.name: node
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }


@dataclass(frozen=True, slots=True)
class FileResult:
    """The mutants of one file, counted."""

    file: str
    mutants: int
    killed: int
    texts: int
    survivors: Sequence[Mutant]

    @classmethod
    def of(cls, file: str, mutants: Sequence[Mutant]) -> FileResult:
        alive = [mutant for mutant in mutants if not mutant.is_killed]
        survivors = [mutant for mutant in alive if not mutant.is_text]
        killed = len(mutants) - len(alive)
        return cls(file, len(mutants), killed, len(alive) - len(survivors), survivors)

    @property
    def percent(self) -> float:
        """The rate of those killed, without the texts that survived."""
        return 100 * self.killed / max(1, self.killed + len(self.survivors))


def results_of(mutants: Sequence[Mutant]) -> list[FileResult]:
    files = sorted({mutant.file for mutant in mutants})
    return [
        FileResult.of(file, [mutant for mutant in mutants if mutant.file == file]) for file in files
    ]


def report(results: Sequence[FileResult]) -> str:
    """A table of the files, then the survivors."""
    head = ("file", "mutants", "killed", "texts", "survivors", "killed %")
    lines = [f"{head[0]:36} {head[1]:>8} {head[2]:>8} {head[3]:>8} {head[4]:>10} {head[5]:>9}"]
    for row in results:
        counts = f"{row.mutants:8} {row.killed:8} {row.texts:8} {len(row.survivors):10}"
        lines.append(f"{row.file:36} {counts} {row.percent:9.1f}")
    survivors = (mutant for row in results for mutant in row.survivors)
    lines += [f"{mutant.name}{mutant.reason}: {mutant.difference()}" for mutant in survivors]
    return "\n".join(lines)


def main() -> int:
    targets = read_targets(Path(__file__).with_suffix(".toml"))
    names = [target.name for target in targets]
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("names", nargs="*", help=f"some of {', '.join(names)}; all without any")
    parser.add_argument("--report", action="store_true", help="report without running")
    parser.add_argument("--processes", type=int, default=2, help="mutants at a time")
    options = parser.parse_args()
    if unknown := set(options.names) - set(names):
        parser.error(f"no target {', '.join(sorted(unknown))}; expected some of {', '.join(names)}")
    chosen = [target for target in targets if target.name in (options.names or names)]
    if not options.report:
        for target in chosen:
            run(target, options.processes)
    results = results_of([mutant for target in chosen for mutant in read_mutants(target)])
    print(report(results))
    is_enough = bool(results) and all(row.percent >= LEAST_PERCENT for row in results)
    return 0 if is_enough else 1


if __name__ == "__main__":
    sys.exit(main())
